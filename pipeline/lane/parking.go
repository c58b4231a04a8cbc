package lane

import (
	"fmt"
	"time"
)

// park stops the lane with a reason, gives everything back, and sets the time of the next try.
func (m *Machine) park(r Reason, now time.Time) {
	if m.stopping {
		m.finish(now)
		return
	}
	m.giveBack()
	m.enter(Parked, r, now)
	if m.open {
		m.act(Action{Kind: CloseSink})
		m.open = false
	}
	if !r.final() {
		m.retryAt = now.Add(min(m.opts.ParkMin<<min(m.parks, 16), m.opts.ParkMax))
		m.parks++
	}
	if r != m.parkedFor { // said once: a try that stops at the same thing is no news
		m.parkedFor = r
		m.act(Action{Kind: Report, Bad: true, Src: m.ack.Src, Text: fmt.Sprintf("parked: %s", r)})
	}
}

// unpark tries again what a parked lane stopped at.
func (m *Machine) unpark(now time.Time) {
	m.blocked, m.refusal = NoReason, NoReason
	if m.reason.final() {
		return
	}
	m.enter(Doubt, m.reason, now)
	m.look(now)
}

// Stop lets what is in flight finish and then ends the lane.
func (m *Machine) Stop(now time.Time) {
	if m.stopping || m.state == Stopped {
		return
	}
	m.stopping = true
	m.hold()
	if m.state == Running {
		m.numberRest(now)
		if m.state == Stopped {
			return
		}
	}
	m.dropPending()
	if m.state == Parked || m.state == Starting && m.window.sent == 0 {
		m.finish(now)
		return
	}
	if m.window.sent == 0 && !m.failed && !m.doubtful && !(m.open && m.midway()) {
		m.finish(now)
		return
	}
	m.enter(HandingOver, m.reason, now)
	m.step(now)
}

// numberRest numbers the other parts of a batch of which some are on their way: half a batch is no place to end at.
func (m *Machine) numberRest(now time.Time) {
	if m.pending.len() == 0 || m.epoch1 {
		return
	}
	r := m.pending.front().recoding
	if r == nil || r.at == 0 {
		return
	}
	for m.pending.len() > 0 && m.pending.front().recoding == r && m.numberPart(r, now) {
	}
}

// finish ends the lane; it holds nothing afterwards unless the sink still borrows it.
func (m *Machine) finish(now time.Time) {
	if m.window.sent == 0 {
		m.giveBack()
	}
	if m.open {
		m.act(Action{Kind: CloseSink})
		m.open = false
	}
	m.retryAt = time.Time{}
	m.enter(Stopped, m.reason, now)
}

// Clean says that the acked position tells all that was sent: nothing is in doubt.
func (m *Machine) Clean() bool {
	return m.window.sent == 0 && !m.doubtful && !m.failed && m.walk <= m.ack.Seq && m.ack.Seq == m.whole.Seq && m.jump == 0
}

// Abort ends the lane at once. What the sink borrows is waited for by the shell; the end is not clean then.
func (m *Machine) Abort(now time.Time) {
	if m.state == Stopped {
		return
	}
	m.stopping = true
	m.hold()
	if m.window.sent > 0 {
		m.doubtful, m.failed = true, true
		m.dropPending()
	}
	m.finish(now)
}

// Park stops the lane for a reason that was found outside of it.
func (m *Machine) Park(r Reason, detail string, now time.Time) {
	if m.stopping || m.state == Parked {
		return
	}
	m.detail = detail
	m.dropPending()
	m.block(r, now)
}
