package lane

import (
	"fmt"
	"time"

	"kferry/pipeline/cluster"
)

// Complete takes the sink's answer for one entry. Answers come in the order of the sends.
func (m *Machine) Complete(c Completion, now time.Time) {
	if m.window.sent == 0 {
		panic("BUG: lane: completion without a send")
	}
	if !m.failed && c.Outcome == Acked && c.Base >= m.ack.Dst && cluster.SoundOffset(c.Base) {
		m.acked(c)
		m.step(now)
		return
	}
	if !m.failed {
		m.failed = true
		m.refusal = NoReason
		switch {
		case c.Outcome == Acked && cluster.SoundOffset(c.Base):
			// Below what was acknowledged: this is not the log that we wrote.
			m.refusal = TargetLostReason
			m.detail = fmt.Sprintf("a batch was appended at target offset %d, %d was acknowledged before", c.Base, m.ack.Dst)
		case c.Outcome == Failed && refused(c.Code):
			m.refusal, m.detail = refusal(c.Code), fmt.Sprintf("source offset %d: %s", m.ack.Src, answer(c))
			c.Entry.refused = true
		case c.Outcome == Failed:
			m.detail = answer(c)
		}
		m.act(Action{Kind: CloseSink})
		m.open, m.shut = false, now
	}
	if m.refusal != TargetLostReason && (c.Outcome == Lost || c.Outcome == Acked || c.Outcome == Failed && !refused(c.Code)) {
		m.doubtful = true
		if c.Outcome == Failed && !m.stopping {
			m.reason = ErrorAnswerReason
		}
	}
	m.window.sent--
	if m.window.sent == 0 {
		m.resolve(now)
	}
}

func answer(c Completion) string {
	if c.Message != "" {
		return fmt.Sprintf("%s: %s", cluster.CodeName(c.Code), c.Message)
	}
	return cluster.CodeName(c.Code)
}

func (m *Machine) acked(c Completion) {
	e := m.window.at(0)
	if e != c.Entry {
		panic("BUG: lane: completion out of order")
	}
	if c.Base != m.ack.Dst {
		m.foreign(fmt.Sprintf("a batch got target offset %d, expected %d", c.Base, m.ack.Dst))
	}
	m.ack = Position{Src: e.srcNext, SrcEpoch: e.srcEpoch, Dst: c.Base + int64(e.count), Seq: e.first + int64(e.count)}
	m.count(e.count, e.Size())
	if !e.more {
		m.complete()
	}
	m.release(e.Batch)
	m.window.pop()
	m.alone = false
	m.tries, m.parks, m.parkedFor = 0, 0, NoReason
}

// foreign notes that somebody else writes to the target partition: from now on only the log itself tells what is ours.
func (m *Machine) foreign(how string) {
	m.counts.Foreign++
	if !m.shared {
		m.shared = true
		m.act(Action{Kind: Report, Bad: true, Text: "others write to the target partition too: " + how})
	}
}

// resolve runs when the sink holds nothing of ours any more and something went wrong.
func (m *Machine) resolve(now time.Time) {
	m.failed = false
	if m.state == Stopped {
		m.giveBack()
		return
	}
	switch {
	case m.doubtful:
		m.alone = true
		if !m.stopping {
			r := LostAnswerReason
			if m.reason == ErrorAnswerReason {
				r = ErrorAnswerReason
			}
			m.enter(Doubt, r, now)
		}
		if m.tries > 0 {
			m.retryLater(now) // nothing was acked since the last time: a target that refuses for now is not to be hammered
			return
		}
		m.tries++
		m.look(now)
	case m.stopping:
		m.finish(now)
	case m.refusal == CodecReason && m.avoid(now):
	case m.refusal != NoReason:
		m.park(m.refusal, now)
	default: // nothing had left: a new stream will do. The broker may have lost our state with its restart
		m.reason, m.alone = NoReason, true
		m.retryLater(now)
	}
}
