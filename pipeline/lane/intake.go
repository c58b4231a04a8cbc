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
	from := m.read
	for _, b := range d.Batches {
		if d.Gen != m.gen {
			b.Release() // one before it sent us back
			continue
		}
		m.take(b, from, now)
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

// take puts one delivered batch in line, if it is the next. begun is where its response began.
func (m *Machine) take(b batch.Batch, begun int64, now time.Time) {
	next := b.NextOffset()
	aborted := m.filter.drops(b) // also for what is not taken: a marker closes its transaction
	if m.blocked != NoReason || next <= begun {
		b.Release() // behind a batch that stops us, or read before
		return
	}
	if m.hw >= 0 && next > m.hw && m.ahead != m.read {
		// A broker notes the high watermark before it reads, and reads up to the one that stands then (Partition.scala,
		// readRecords). The next answer's is not below it, so a sound batch passes the second time.
		b.Release()
		m.ahead = m.read
		m.seek(m.read, m.readEpoch)
		return
	}
	if m.hw >= 0 && next > m.hw {
		// The first 16 bytes lie outside the checksum; an offset that was damaged must not make us jump.
		m.detail = fmt.Sprintf("batch at source offsets %d-%d, the log ends at %d", b.BaseOffset(), next-1, m.hw)
		b.Release()
		m.block(CorruptReason, now)
		return
	}
	from := m.read
	if b.BaseOffset() < m.read && (m.read != m.loose || next <= m.read) {
		// A fetch may begin inside a batch, but all our positions are ends of batches: this is another log, or a damaged offset.
		m.detail = fmt.Sprintf("batch at source offsets %d-%d, expected %d", b.BaseOffset(), next-1, m.read)
		b.Release()
		m.block(OverlapReason, now)
		return
	}
	if b.BaseOffset() < m.read && m.inside != b.BaseOffset() {
		// The start lies inside this batch, whose head is cut off. That goes by an offset outside the checksum: it is read twice.
		m.inside = b.BaseOffset()
		b.Release()
		m.seek(m.read, m.readEpoch)
		return
	}
	m.read, m.readEpoch, m.ahead = next, b.LeaderEpoch(), -1
	m.held += int64(b.Size())
	var r *recoding
	if !droppable(b, aborted) {
		if plan, ok := m.planFor(b, from); ok {
			r = &recoding{plan: plan, base: max(b.BaseOffset(), from), next: next, epoch: b.LeaderEpoch()}
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
		m.seek(m.read, m.readEpoch) // the bounds moved meanwhile: ask again
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
