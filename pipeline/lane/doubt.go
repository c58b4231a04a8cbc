package lane

import (
	"fmt"
	"math"
	"time"
)

// look asks the target what it holds.
func (m *Machine) look(now time.Time) {
	if m.looking {
		return
	}
	m.looking = true
	m.counts.Looks++
	m.act(Action{Kind: Look, Scan: m.shared})
}

// LookFailed tells that the target gave no answer.
func (m *Machine) LookFailed(why string, now time.Time) {
	m.looking = false
	m.detail = why
	if m.state == Doubt {
		m.reason = LookFailedReason
	}
	m.lookAgain(now)
}

func (m *Machine) lookAgain(now time.Time) { m.retryLater(now) }

// LookedUp weighs what the target says about our last write by two witnesses that have to agree: the last sequence that the
// leader knows of us, and the end of what its replicas have confirmed.
func (m *Machine) LookedUp(l LookResult, now time.Time) {
	m.looking = false
	if m.state != Doubt && m.state != HandingOver {
		return
	}
	v := m.doubts()
	v.look = l
	if l.Epoch > m.id.Epoch {
		m.lost(FencedReason, fmt.Sprintf("the target knows epoch %d of this lane's producer id, the lane writes under %d", l.Epoch, m.id.Epoch), now)
		return
	}
	byEnd := l.End - m.ack.Dst
	bySeq := SequenceDistance(m.ack.Seq, l.Last)
	known := l.Known && l.Last >= 0
	if !known && l.Epoch >= 0 && l.Epoch < m.id.Epoch {
		if m.ack.Seq > 0 {
			// It forgot this epoch, and then took a late batch of an older one: now it takes sequence 0 of a newer one only.
			m.mismatch(fmt.Sprintf("the target knows epoch %d of this lane's producer id, and no longer %d", l.Epoch, m.id.Epoch), now)
			return
		}
		known, bySeq = true, 0 // it knows the producer, and nothing of this epoch
	}
	if byEnd < 0 || known && bySeq < 0 {
		// A replica that lags may say so for a moment; a leader says so for ever.
		if v.short.IsZero() {
			v.short = now
		}
		if now.Sub(v.short) < m.opts.ForeignTime {
			m.lookAgain(now)
			return
		}
		m.lost(TargetLostReason, fmt.Sprintf("the target ends at offset %d, %d was acknowledged", l.End, m.ack.Dst), now)
		return
	}
	v.short = time.Time{}
	switch {
	case l.Scanned:
		if known && bySeq > l.Written {
			m.behind(now)
			return
		}
		m.written(l.Written, now)
	case !known:
		// The state is lost, or was never there: the end alone tells, once it stands still.
		if v.settled.IsZero() || v.end != l.End {
			v.settled, v.end = now, l.End
		}
		if now.Sub(v.settled) < m.opts.SettleTime {
			m.retryAt = now.Add(m.opts.SettleTime / 2)
			return
		}
		if byEnd == 0 || m.doubtful && byEnd <= m.sentSeq-m.ack.Seq && m.boundary(byEnd) {
			m.written(byEnd, now)
			return
		}
		m.others(now)
	case byEnd == bySeq:
		// Also beyond what was sent: what a lane before this one left in a socket may land late, the same bytes under the same numbers.
		m.written(bySeq, now)
	case byEnd < bySeq:
		m.behind(now)
	default:
		m.others(now)
	}
}

// behind waits for the target's replicas: its leader holds more than they have confirmed.
func (m *Machine) behind(now time.Time) {
	if m.state == Doubt {
		m.reason = BehindReason
	}
	m.lookAgain(now)
}

// lost parks the lane for good: the target is not what was written to.
func (m *Machine) lost(r Reason, detail string, now time.Time) {
	m.doubtful, m.detail = false, detail
	if m.stopping {
		m.doubtful = true // not a clean end
		m.finish(now)
		return
	}
	m.park(r, now)
}

// others runs when the end lies beyond what we can have written: after a while the answer is sought in the log itself.
func (m *Machine) others(now time.Time) {
	v := m.doubts()
	if v.beyond.IsZero() {
		v.beyond = now
	}
	if now.Sub(v.beyond) >= m.opts.ForeignTime {
		m.foreign("its end lies beyond what this link wrote")
		m.look(now)
		return
	}
	m.lookAgain(now)
}

// SequenceDistance is how many records lie between the acked ones and last, which has wrapped at 2^31.
func SequenceDistance(acked int64, last int32) int64 {
	d := (int64(last) + 1 - acked) & math.MaxInt32
	if d > math.MaxInt32/2 {
		d -= math.MaxInt32 + 1
	}
	return d
}

// boundary says whether n records from the acked position end at the end of an entry.
func (m *Machine) boundary(n int64) bool {
	if n == 0 || m.window.size == 0 {
		return true // without a window the walk over the source finds out
	}
	for i := range m.window.size {
		e := m.window.at(i)
		if d := e.first + int64(e.count) - m.ack.Seq; d >= n {
			return d == n
		}
	}
	return false
}

// written goes on behind n records that the target holds beyond the acked ones.
func (m *Machine) written(n int64, now time.Time) {
	v := m.doubts()
	v.settled, v.beyond = time.Time{}, time.Time{}
	if n > 0 {
		m.tries = 0
	}
	goal := m.ack.Seq + n
	m.walk = goal
	for m.window.size > 0 {
		e := m.window.at(0)
		end := e.first + int64(e.count)
		if end > goal {
			break
		}
		m.ack = Position{Src: e.srcNext, SrcEpoch: e.srcEpoch, Dst: m.ack.Dst + int64(e.count), Seq: end}
		m.count(e.count, e.Size())
		if !e.more {
			m.complete()
		}
		m.release(e.Batch)
		m.window.pop()
	}
	if m.window.size > 0 && m.ack.Seq != goal {
		m.mismatch(fmt.Sprintf("the target ends inside a batch, %d records behind the acknowledged ones", n), now)
		return
	}
	if v.look.Scanned && n > 0 && m.ack.Seq == goal {
		m.ack.Dst = v.look.NextDst
		if m.ack.Seq == m.whole.Seq {
			m.whole.Dst = m.ack.Dst
		}
	}
	m.doubtful = false
	if m.stopping {
		m.finish(now)
		return
	}
	m.counts.Resent += int64(m.window.size)
	m.goOn(now)
}

// goOn opens a stream again; what the window still holds goes first, alone.
func (m *Machine) goOn(now time.Time) {
	m.alone, m.shut = true, now
	m.enter(Starting, NoReason, now)
	if m.window.size == 0 {
		m.tip = m.ack
		if m.pending.len() == 0 && m.read != m.ack.Src {
			m.seek(m.ack.Src, m.ack.SrcEpoch)
		}
	}
	if m.blocked == NoReason && m.held < m.mayHold {
		m.ask()
	}
	m.act(Action{Kind: OpenSink})
}

// mismatch runs when the target's words fit nothing that we know: the lane goes back to the acked position under a new
// epoch. What lies behind it may then stand twice, never be missing.
func (m *Machine) mismatch(why string, now time.Time) {
	doubled := max(m.walk, m.sentSeq) - m.whole.Seq
	m.counts.Doubled += doubled
	m.act(Action{Kind: Report, Bad: true, Src: m.whole.Src, Text: fmt.Sprintf(
		"going back to source offset %d under a new epoch: %s; up to %d records may stand twice on the target", m.whole.Src, why, doubled)})
	m.doubtful = false
	m.giveBack()
	m.ack.Dst = max(m.ack.Dst, m.doubts().look.End)
	m.tip.Dst, m.whole.Dst = m.ack.Dst, m.ack.Dst
	m.raiseEpoch(now)
}

// raiseEpoch starts the sequence anew. The window is empty.
func (m *Machine) raiseEpoch(now time.Time) {
	m.epoch1 = false
	if m.id.Epoch == math.MaxInt16 {
		m.park(EpochsReason, now)
		return
	}
	m.id.Epoch++
	m.walk, m.jump, m.alone = 0, 0, true
	m.ack.Seq, m.tip.Seq, m.sentSeq = 0, 0, 0
	if m.evidence != nil {
		m.evidence.prints = nil
	}
	m.whole = m.ack
	if m.stopping {
		m.finish(now) // the last checkpoint tells it
		return
	}
	m.saving = true
	m.act(Action{Kind: Save})
	if m.state == Doubt {
		m.goOn(now)
	}
}
