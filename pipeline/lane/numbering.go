package lane

import (
	"fmt"
	"time"

	"kferry/batch"
)

// step numbers and sends what may go, and moves the state on.
func (m *Machine) step(now time.Time) {
	if m.state == HandingOver && m.window.sent == 0 && !m.failed && !m.doubtful {
		m.finish(now)
		return
	}
	if m.blocked != NoReason && m.idle() && (m.state == Starting || m.state == Doubt) {
		m.park(m.blocked, now) // it may be why no stream can be had, or no answer
		return
	}
	if m.state != Running || m.failed || m.saving {
		return
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
	if m.open && m.held <= m.opts.HeldBytes/2 && m.blocked == NoReason {
		m.ask()
	}
}

// idle says that nothing is held, at the sink or in doubt.
func (m *Machine) idle() bool { return m.pending.len() == 0 && m.window.size == 0 && !m.doubtful }

// unsure says whether sequences from the next one on may have been sent before, by this lane or by the one before it.
func (m *Machine) unsure() bool { return m.alone || m.tip.Seq < max(m.sentSeq, m.walk) }

// number gives the first pending batch its sequence, or drops it. It returns false when nothing more can be done now.
func (m *Machine) number(now time.Time) bool {
	if m.pending.len() == 0 || m.epoch1 || m.window.size >= m.opts.Depth {
		return false
	}
	q := m.pending.front()
	b := q.batch
	if b.Magic() == 2 && (b.IsControl() || q.aborted || b.Count() == 0) {
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
	switch {
	case b.Magic() != 2:
		return m.obstacle(OldFormatReason, b)
	case !b.Dense():
		return m.obstacle(HolesReason, b)
	}
	n := int64(b.Count())
	if m.jump > 0 && b.NextOffset() > m.jump {
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
		m.mismatch(fmt.Sprintf("the batch at source offset %d is not the one that was sent from there", b.BaseOffset()), now)
		return false
	}
	if m.tip.Seq < m.walk {
		return m.walkOver(b, n, now)
	}
	if m.tip.Seq+n > m.opts.MaxSequence {
		m.epoch1 = true
		return false
	}
	e := m.window.push()
	e.Batch, e.first, e.count, e.srcNext, e.srcEpoch = b, m.tip.Seq, b.Count(), b.NextOffset(), b.LeaderEpoch()
	batch.Patch(&e.Header, b, batch.Identity{ProducerID: m.id.ProducerID, Epoch: m.id.Epoch, Sequence: int32(m.tip.Seq)})
	m.tip.Seq += n
	m.tip.Src, m.tip.SrcEpoch = e.srcNext, e.srcEpoch
	m.pending.pop()
	return true
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
	}
	m.tip.Src, m.tip.SrcEpoch = next, epoch
}

// walkOver counts a batch that the target holds already.
func (m *Machine) walkOver(b batch.Batch, n int64, now time.Time) bool {
	if m.window.size > 0 {
		panic("BUG: lane: walk with a window")
	}
	if m.tip.Seq+n > m.walk {
		m.mismatch(fmt.Sprintf("the target ends inside the batch at source offset %d", b.BaseOffset()), now)
		return false
	}
	m.ack.Seq += n
	m.ack.Dst += n
	m.ack.Src, m.ack.SrcEpoch = b.NextOffset(), b.LeaderEpoch()
	m.tip = m.ack
	m.count(b.Count(), b.Size())
	m.pending.pop()
	m.release(b)
	return true
}

// count notes what was acked. It is told the numbers: by then the batch's header has left the processor's cache.
func (m *Machine) count(records int32, bytes int) {
	m.counts.Records += int64(records)
	m.counts.Batches++
	m.counts.Bytes += int64(bytes)
}

// submit sends numbered entries: as many as Depth, one where it has to go alone.
func (m *Machine) submit(now time.Time) {
	for m.open && m.window.sent < m.window.size {
		if m.alone && m.window.sent > 0 {
			return
		}
		e := m.window.at(m.window.sent)
		m.window.sent++
		m.sentSeq = max(m.sentSeq, e.first+int64(e.count))
		m.act(Action{Kind: Send, Entry: e})
	}
}
