package lane

import (
	"time"

	"kferry/batch"
)

// Machine is the state of a lane. It is not safe for concurrent use.
type Machine struct {
	opts   *Options
	id     batch.Identity // Sequence unused
	shared bool           // others write to the target partition too
	state  State
	reason Reason
	detail string // the broker's words, or what differs

	rules     Rules
	ack       Position // contiguous acknowledged prefix
	whole     Position // the same at the end of a source batch: it differs while one that goes in parts is acked in part
	part      partial  // what is acked behind whole
	tip       Position // Src and Seq behind the last numbered batch
	read      int64    // source offset that the next delivered batch should start at
	readEpoch int32    // leader epoch of the batch before it
	gen       uint32   // generation of the source's cursor
	sentSeq   int64    // behind the last record that this lane sent in this epoch
	walk      int64    // sequences below this are on the target already; batches up to it are counted, not sent

	pending  queue
	window   window
	held     int64
	mayHold  int64          // from here on the lane asks for no more
	filter   *abortedFilter // nil before the first aborted transaction
	ticket   uint32         // of the last re-encoding that was asked for
	holding  bool           // the source was told to hold
	alone    bool           // the next entry goes alone
	open     bool           // a stream is open
	doubtful bool           // something sent may have been appended
	failed   bool           // the stream returned something: wait for the rest, then resolve
	loose    int64          // at this position, and no other, a batch may begin before it: its head is cut off
	toRecode int            // pending batches that have to be re-encoded and were not asked for
	recoding int            // under way
	sighted  *sighting      // what looked odd at the position that is read from, nil for nothing
	jump     int64          // retention took what lay before this offset and may have been sent: no walk leads over it; 0 for none
	refusal  Reason
	blocked  Reason // the next batch cannot be forwarded: park once the window is empty
	saving   bool   // waits for Saved
	looking  bool   // a look-up is under way
	stopping bool
	epoch1   bool // the epoch has to be raised once the window is empty

	since     time.Time // when the state was entered
	shut      time.Time // when the last stream was given up, or a new one was first asked for
	retryAt   time.Time // next try, zero for none
	tries     int
	parks     int
	parkedFor Reason // what was last said; none since an ack
	evidence  *evidence

	hw, lso, logStart int64
	counts            Counts
	actions           []Action
}

// evidence is what a lane remembers of its doubts; one that never had any has none.
type evidence struct {
	look    LookResult // the last one
	settled time.Time  // when look.End was first seen at end
	end     int64
	beyond  time.Time // when the end was first seen beyond the expected
	short   time.Time // when the target was first seen to hold less than it acknowledged
	prints  []print   // of batches that were sent and then given back: what is read again has to be the same
}

// doubts returns the evidence, for writing.
func (m *Machine) doubts() *evidence {
	if m.evidence == nil {
		m.evidence = new(evidence)
	}
	return m.evidence
}

// NewMachine starts at a position. Many machines share opts: nobody changes them. id is the lane's producer identity; alone must be true unless the target is known to
// hold the identity's state. shared says that others are known to write to the target partition.
func NewMachine(opts *Options, id batch.Identity, at Position, shared bool, now time.Time) *Machine {
	m := &Machine{opts: opts, mayHold: opts.HeldBytes, id: id, shared: shared, ack: at, whole: at, tip: at, sentSeq: at.Seq, read: at.Src, readEpoch: at.SrcEpoch, alone: true, loose: at.Src,
		hw: -1, lso: -1, logStart: -1, since: now, shut: now}
	m.gen = 1
	m.act(Action{Kind: OpenSink})
	m.act(Action{Kind: Seek, Src: at.Src, Epoch: at.SrcEpoch, Gen: m.gen})
	m.act(Action{Kind: Ask}) // a cursor begins silent
	return m
}

// SetBudget tells what the lane's connection may have under way. What is read far ahead of that only leaves the processor's cache, or
// never was in memory before: its pages cost more than its copying.
func (m *Machine) SetBudget(bytes int64) { m.mayHold = min(m.opts.HeldBytes, bytes+m.opts.Ahead) }

// Actions returns what is to be done and forgets it. The slice is valid until the next event.
func (m *Machine) Actions() []Action {
	a := m.actions
	m.actions = m.actions[:0]
	return a
}

func (m *Machine) act(a Action) { m.actions = append(m.actions, a) }

func (m *Machine) enter(s State, r Reason, now time.Time) {
	if m.state != s || m.reason != r {
		m.since = now
	}
	m.state, m.reason = s, r
	if s == Running {
		m.detail = ""
	}
}

// Opened tells that the stream stands.
func (m *Machine) Opened(now time.Time) {
	if m.state != Starting && m.state != Running {
		m.act(Action{Kind: CloseSink}) // stopped or parked since it was asked for
		return
	}
	m.open = true
	if m.state == Starting {
		m.enter(Running, NoReason, now)
	}
	m.step(now)
}

// OpenFailed tells that no stream could be had; it is tried again.
func (m *Machine) OpenFailed(now time.Time) {
	m.open = false
	if m.state == Starting || m.state == Running {
		m.retryLater(now)
	}
}

func (m *Machine) retryLater(now time.Time) {
	wait := m.opts.RetryMin << min(m.tries, 16)
	m.tries++
	m.retryAt = now.Add(min(wait, m.opts.RetryMax))
}

// Saved tells that the position is stored.
func (m *Machine) Saved(now time.Time) {
	m.saving = false
	m.step(now)
}

// Deadline is when Tick wants to be called; zero for no wish.
func (m *Machine) Deadline() time.Time {
	d := m.retryAt
	if since, ok := m.holdsInVain(); ok {
		if g := since.Add(m.opts.KeepInDoubt); d.IsZero() || g.Before(d) {
			d = g
		}
	}
	return d
}

// holdsInVain says whether the lane holds buffers that cannot go now, and since when: other lanes could use the memory.
func (m *Machine) holdsInVain() (since time.Time, ok bool) {
	switch {
	case m.held == 0 || m.window.sent > 0:
		return time.Time{}, false
	case m.state == Doubt:
		return m.since, true
	case (m.state == Starting || m.state == Running) && !m.open:
		return m.shut, true
	}
	return time.Time{}, false
}

// Tick lets time pass.
func (m *Machine) Tick(now time.Time) {
	if since, ok := m.holdsInVain(); ok && !now.Before(since.Add(m.opts.KeepInDoubt)) {
		m.giveBack()
	}
	if m.retryAt.IsZero() || now.Before(m.retryAt) {
		return
	}
	m.retryAt = time.Time{}
	switch m.state {
	case Starting, Running:
		if !m.open {
			m.act(Action{Kind: OpenSink})
		}
	case HandingOver:
		if m.doubtful {
			m.look(now)
		}
	case Parked:
		m.unpark(now)
	case Doubt:
		m.look(now)
	}
}

// giveBack releases all that the lane holds; the source is read again from the acked position once the lane goes on.
func (m *Machine) giveBack() {
	if m.window.sent > 0 {
		panic("BUG: lane: buffers given back while the sink borrows them")
	}
	for m.window.size > 0 {
		e := m.window.at(0)
		m.remember(e)
		m.release(e.Batch)
		m.window.pop()
	}
	m.dropPending()
	m.epoch1 = false // found again, by the batch that is too much
	if m.ack.Seq != m.whole.Seq {
		m.walk = max(m.walk, m.ack.Seq) // parts of a batch: counted off when it is read again
		m.ack, m.part = m.whole, partial{}
	}
	m.tip = m.ack
	m.seek(m.ack.Src, m.ack.SrcEpoch)
	m.hold()
}

// rest gives up what a lane without work does not need: arrays that it had filled once.
func (m *Machine) rest() {
	m.actions = nil
	m.window.rest()
	if m.pending.len() == 0 {
		m.pending = queue{}
	}
}

func (m *Machine) dropPending() {
	for m.pending.len() > 0 {
		m.discard(m.pending.front())
		m.pending.pop()
	}
	m.blocked = NoReason
}

func (m *Machine) release(b batch.Batch) {
	m.held -= int64(b.Size())
	b.Release()
}

func (m *Machine) seek(src int64, epoch int32) {
	m.gen++
	m.read, m.readEpoch = src, epoch
	m.act(Action{Kind: Seek, Src: src, Epoch: epoch, Gen: m.gen})
}

func (m *Machine) hold() {
	if !m.holding {
		m.holding = true
		m.act(Action{Kind: Hold})
	}
}

func (m *Machine) ask() {
	if m.holding && !m.stopping {
		m.holding = false
		m.act(Action{Kind: Ask})
	}
}

// State is where the lane stands.
func (m *Machine) State() State { return m.state }

// Borrowed is the number of entries that the sink still has.
func (m *Machine) Borrowed() int { return m.window.sent }

func (m *Machine) checkpoint() Checkpoint {
	return Checkpoint{Position: m.whole, ID: m.id, Shared: m.shared, Clean: m.Clean()}
}

func (m *Machine) status(s *Status) {
	s.Checkpoint = m.checkpoint()
	s.State, s.Reason, s.Detail, s.Since = m.state, m.reason, m.detail, m.since
	s.Read, s.HighWatermark, s.LastStable, s.LogStart = m.read, m.hw, m.lso, m.logStart
	s.MayHold = m.mayHold
	s.Held, s.Queued, s.Window, s.AtSink = m.held, int32(m.pending.len()), int32(m.window.size), int32(m.window.sent)
	s.Counts = m.counts
}
