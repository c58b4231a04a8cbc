package lane

import (
	"fmt"
	"time"

	"kferry/batch"
)

// step numbers and sends what may go, and moves the state on.
func (m *Machine) step(now time.Time) {
	if m.state == HandingOver && !m.failed && !m.doubtful {
		m.submit(now)
		if m.window.sent == 0 {
			m.finish(now)
		}
		return
	}
	if m.blocked != NoReason && m.idle() && (m.state == Starting || m.state == Doubt) {
		m.park(m.blocked, now) // it may be why no stream can be had, or no answer
		return
	}
	if m.state != Running || m.failed || m.saving {
		return
	}
	if m.toRecode > 0 {
		m.recodeNext()
	}
	for m.number(now) && m.state == Running {
	}
	if m.pending.len() == 0 && m.blocked == NoReason && m.tip.Src < m.read {
		m.passed(m.read, m.readEpoch) // over what retention took behind the last batch
	}
	m.submit(now)
	if m.state != Running {
		return
	}
	if m.blocked != NoReason && m.idle() {
		m.park(m.blocked, now)
		return
	}
	if m.epoch1 && m.window.size == 0 {
		m.raiseEpoch(now)
		return
	}
	if m.open && m.held <= m.mayHold/2 && m.blocked == NoReason {
		m.ask()
	}
}

// idle says that nothing is held, at the sink or in doubt.
func (m *Machine) idle() bool { return m.pending.len() == 0 && m.window.size == 0 && !m.doubtful }

// unsure says whether sequences from the next one on may have been sent before, by this lane or by the one before it.
func (m *Machine) unsure() bool { return m.alone || m.tip.Seq < max(m.sentSeq, m.walk) }

// item is the next thing to be numbered: a source batch as it lies, or a part of one that was re-encoded.
type item struct {
	batch batch.Batch
	runs  []Run
	base  int64 // of the source batch
	next  int64 // the offset behind it
	epoch int32
	last  bool // nothing more of the source batch follows
}

// number gives the first pending batch its sequence, or drops it. It returns false when nothing more can be done now.
func (m *Machine) number(now time.Time) bool {
	if m.pending.len() == 0 || m.epoch1 || m.window.size >= m.opts.Depth {
		return false
	}
	q := m.pending.front()
	if q.recoding != nil {
		return m.numberPart(q.recoding, now)
	}
	b := q.batch
	if droppable(b, q.aborted) {
		// What is thrown away is checked first: damage must not pass for a marker.
		if b.Verify() != nil {
			return m.obstacle(CorruptReason, b)
		}
		switch {
		case b.IsControl():
			m.counts.Dropped[DropControl]++
		case q.aborted:
			m.counts.Dropped[DropAborted]++
		default:
			m.counts.Dropped[DropEmpty]++
		}
		m.passed(b.NextOffset(), b.LeaderEpoch())
		m.pending.pop()
		m.release(b)
		return true
	}
	return m.numberItem(item{batch: b, base: b.BaseOffset(), next: b.NextOffset(), epoch: b.LeaderEpoch(), last: true}, now)
}

// numberPart goes on with the parts of the first pending batch, once they are there.
func (m *Machine) numberPart(r *recoding, now time.Time) bool {
	switch {
	case !r.done:
		return false
	case r.err != nil:
		return m.notRecoded(r)
	case r.at == 0 && m.tip.Seq >= m.walk && m.tip.Seq+r.records() > m.opts.MaxSequence:
		m.epoch1 = true // before the first part: half a batch is no place for a new epoch
		return false
	case len(r.parts) == 0: // all of it lay before the start
		m.counts.Dropped[DropEmpty]++
		m.passed(r.next, r.epoch)
		m.pending.pop()
		return true
	}
	p := r.parts[r.at]
	return m.numberItem(item{batch: p.Batch, runs: p.Runs, base: r.base, next: r.next, epoch: r.epoch, last: r.at == len(r.parts)-1}, now)
}

// numberItem gives the next sequences to it, or counts it off.
func (m *Machine) numberItem(it item, now time.Time) bool {
	b, n := it.batch, int64(it.batch.Count())
	if m.jump > 0 && it.next > m.jump {
		// What was sent from before the jump may still land, and is not to be counted off here: its numbers are not for other records.
		switch {
		case !m.unsure():
			m.jump = 0
		case m.window.size > 0:
			return false
		default:
			m.mismatch(fmt.Sprintf("the source lost what lay before offset %d, of which the target holds an unknown part", m.jump), now)
			return false
		}
	}
	if !m.asSent(b) {
		if m.window.size > 0 {
			return false
		}
		m.mismatch(fmt.Sprintf("the batch at source offset %d is not the one that was sent from there", it.base), now)
		return false
	}
	if m.tip.Seq < m.walk {
		return m.walkOver(it, n, now)
	}
	if m.tip.Seq+n > m.opts.MaxSequence {
		m.epoch1 = true
		return false
	}
	e := m.window.push()
	e.Batch, e.runs, e.first, e.count, e.more, e.refused = b, it.runs, m.tip.Seq, b.Count(), !it.last, false
	batch.Patch(&e.Header, b, batch.Identity{ProducerID: m.id.ProducerID, Epoch: m.id.Epoch, Sequence: int32(m.tip.Seq)})
	m.tip.Seq += n
	if it.last {
		m.tip.Src, m.tip.SrcEpoch = it.next, it.epoch
	}
	e.srcNext, e.srcEpoch = m.tip.Src, m.tip.SrcEpoch
	m.taken()
	return true
}

// taken takes the item that was numbered from the queue.
func (m *Machine) taken() {
	if r := m.pending.front().recoding; r != nil {
		if r.at++; r.at < len(r.parts) {
			return
		}
	}
	m.pending.pop()
}

// obstacle stops the lane in front of b.
func (m *Machine) obstacle(r Reason, b batch.Batch) bool {
	m.detail = fmt.Sprintf("batch at source offsets %d-%d, %d bytes", b.BaseOffset(), b.NextOffset()-1, b.Size())
	m.dropPending()
	m.blocked = r
	m.hold()
	return false
}

// passed moves the source position over something that was dropped.
func (m *Machine) passed(next int64, epoch int32) {
	if e := m.window.last(); e != nil {
		e.srcNext, e.srcEpoch = next, epoch
	} else {
		m.ack.Src, m.ack.SrcEpoch = next, epoch
		m.whole = m.ack
	}
	m.tip.Src, m.tip.SrcEpoch = next, epoch
}

// walkOver counts an item that the target holds already.
func (m *Machine) walkOver(it item, n int64, now time.Time) bool {
	if m.window.size > 0 {
		panic("BUG: lane: walk with a window")
	}
	if m.tip.Seq+n > m.walk {
		m.mismatch(fmt.Sprintf("the target ends inside the batch at source offset %d", it.base), now)
		return false
	}
	m.ack.Seq += n
	m.ack.Dst += n
	m.count(it.batch.Count(), it.batch.Size())
	if it.last {
		m.ack.Src, m.ack.SrcEpoch = it.next, it.epoch
		m.complete()
	}
	m.tip = m.ack
	m.taken()
	m.release(it.batch)
	return true
}

// count notes what was acked. It is told the numbers: by then the batch's header has left the processor's cache.
func (m *Machine) count(records int32, bytes int) {
	m.part.records += int64(records)
	m.part.batches++
	m.part.bytes += int64(bytes)
}

// complete notes that the acked position is the end of a source batch. Only there a copy can be taken up again: what is
// acked of a batch in parts is counted off anew.
func (m *Machine) complete() {
	m.whole = m.ack
	m.counts.Records += m.part.records
	m.counts.Batches += m.part.batches
	m.counts.Bytes += m.part.bytes
	m.part = partial{}
}

// partial is what is acked of a source batch that is not acked whole.
type partial struct{ records, batches, bytes int64 }

// submit sends numbered entries: as many as Depth, one where it has to go alone.
func (m *Machine) submit(now time.Time) {
	for m.open && m.window.sent < m.window.size {
		if m.state == HandingOver && !m.midway() {
			return // only what has begun is brought to its end
		}
		if m.alone && m.window.sent > 0 {
			return
		}
		e := m.window.at(m.window.sent)
		m.window.sent++
		m.sentSeq = max(m.sentSeq, e.first+int64(e.count))
		m.act(Action{Kind: Send, Entry: e})
	}
}
