package lane

import (
	"fmt"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
)

// Deliver takes one response's part for this partition: the references of its batches move here.
func (m *Machine) Deliver(d Delivery, now time.Time) {
	if d.Gen != m.gen || m.state == Parked || m.state == Stopped || m.stopping {
		for _, b := range d.Batches {
			b.Release()
		}
		return
	}
	if d.Diverging != nil {
		m.release0(d.Batches)
		m.detail = fmt.Sprintf("leader epoch %d ends at offset %d on the source, %d was read", d.Diverging.Epoch, d.Diverging.EndOffset, m.read)
		m.block(TruncatedReason, now)
		return
	}
	if d.Needs > 0 {
		m.detail = fmt.Sprintf("the batch at source offset %d takes %d bytes of memory, more than all there is", m.read, d.Needs)
		m.block(MemoryReason, now)
		return
	}
	if d.Code != 0 {
		m.release0(d.Batches)
		m.sourceError(d.Code, now)
		return
	}
	m.hw, m.lso = d.HighWatermark, d.LastStable
	if d.LogStart >= 0 {
		m.logStart = d.LogStart
	}
	if m.filter == nil && len(d.Aborted) > 0 {
		m.filter = new(abortedFilter)
	}
	if m.filter != nil {
		m.filter.reset(d.Aborted)
	}
	for i, b := range d.Batches {
		if d.Gen != m.gen {
			b.Release() // one before it sent us back
			continue
		}
		var behind *batch.Batch
		if i+1 < len(d.Batches) {
			behind = &d.Batches[i+1]
		}
		m.take(b, behind, now)
	}
	if m.held >= m.mayHold {
		m.hold()
	}
	m.step(now)
}

func (m *Machine) release0(bs []batch.Batch) {
	for _, b := range bs {
		b.Release()
	}
}

// take puts one delivered batch in line, if it is the next. behind is the one after it in its response, nil for none.
func (m *Machine) take(b batch.Batch, behind *batch.Batch, now time.Time) {
	next := b.NextOffset()
	aborted := m.filter.drops(b) // also for what is not taken: a marker closes its transaction
	if m.blocked != NoReason {
		b.Release() // behind a batch that stops us
		return
	}
	was := m.sighted
	if m.doubted(b, behind) {
		b.Release()
		m.seek(m.read, m.readEpoch)
		return
	}
	base, from := b.BaseOffset(), m.read
	if why, reason := m.misplaced(b, behind, was); reason != NoReason {
		m.detail = fmt.Sprintf("batch at source offsets %d-%d, %s", base, next-1, why)
		b.Release()
		m.block(reason, now)
		return
	}
	if next <= m.read {
		b.Release() // read before
		return
	}
	m.read, m.readEpoch, m.sighted = next, b.LeaderEpoch(), nil
	m.held += int64(b.Size())
	var r *recoding
	if !droppable(b, aborted) {
		if plan, ok := m.planFor(b, from); ok {
			r = &recoding{plan: plan, base: max(base, from), next: next, epoch: b.LeaderEpoch()}
			m.toRecode++
		}
	}
	m.pending.push(b, aborted, r)
}

// droppable says that a batch holds nothing that goes to a target.
func droppable(b batch.Batch, aborted bool) bool {
	return b.Magic() == 2 && (b.IsControl() || aborted || b.Count() == 0)
}

// sourceError deals with a partition's error in a fetch response. The source handles what a new leader or a new session
// cures; here arrives what concerns the position or the topic.
func (m *Machine) sourceError(code int16, now time.Time) {
	if code == 1 { // OFFSET_OUT_OF_RANGE
		m.act(Action{Kind: Bounds})
		return
	}
	m.detail = "the source answers " + cluster.CodeName(code)
	switch code {
	case 29: // TOPIC_AUTHORIZATION_FAILED
		m.block(SourceDenied, now)
	case 100, 103: // UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
		m.block(RecreatedReason, now)
	case 3: // UNKNOWN_TOPIC_OR_PARTITION
		m.block(SourceGoneReason, now)
	case 2: // CORRUPT_MESSAGE
		m.block(CorruptReason, now)
	default:
		m.block(SourceErrorReason, now)
	}
}

// SourceBounds answers Bounds: our position was outside of [start, end].
func (m *Machine) SourceBounds(start, end int64, now time.Time) {
	if m.state == Stopped || m.state == Parked || m.stopping {
		return
	}
	switch {
	case m.read < start:
		lost := start - m.read
		m.counts.Skipped += lost
		m.act(Action{Kind: Report, Bad: true, Src: m.read,
			Text: fmt.Sprintf("the source's retention overtook the copy: source offsets %d to %d are gone and were not copied", m.read, start-1)})
		m.moveTo(start)
		m.loose = start // retention may leave a batch that begins before the log start
		m.step(now)
	case m.read > end:
		m.detail = fmt.Sprintf("the source's log ends at %d, %d was read", end, m.read)
		m.block(TruncatedReason, now)
	default:
		// The bounds moved meanwhile, or the leader does not know our epoch, which it then answers with the same code (Partition.scala,
		// readRecords): without it.
		m.seek(m.read, -1)
	}
}

// moveTo goes on reading at src, behind all that is pending or in the window.
func (m *Machine) moveTo(src int64) {
	if m.window.size == 0 && m.unsure() {
		m.jump = src
	}
	if m.pending.len() == 0 {
		m.passed(src, -1)
	}
	m.seek(src, -1)
}

// block parks the lane as soon as all before the obstacle is acked.
func (m *Machine) block(r Reason, now time.Time) {
	if m.blocked == NoReason {
		m.blocked = r
	}
	m.hold()
	m.step(now)
}

// BoundsFailed tells that the source did not say where its log begins and ends; the position is tried again.
func (m *Machine) BoundsFailed(now time.Time) {
	if m.state != Stopped && !m.stopping && m.state != Parked {
		m.seek(m.read, m.readEpoch)
	}
}
