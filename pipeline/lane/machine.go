package lane

import (
	"fmt"
	"math"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
)

// Options are a machine's limits. All times are lengths of time, all sizes bytes.
type Options struct {
	Depth       int           // entries with the sink at once
	HeldBytes   int64         // above this the lane stops asking for more, below half of it it asks again
	KeepInDoubt time.Duration // a lane longer in doubt gives its buffers back and fetches them again later
	RetryMin    time.Duration // first pause before looking, or opening a stream, again
	RetryMax    time.Duration // the pauses double up to this
	ParkMin     time.Duration // first pause before a parked lane tries again
	ParkMax     time.Duration // the pauses double up to this
	SettleTime  time.Duration // how long the target's end must stand still where no producer state says what was written
	ForeignTime time.Duration // how long the target's end may lie beyond the expected before others are taken to write too
	MaxSequence int64         // an epoch ends before its sequences pass this
}

// DefaultOptions gives the limits for a lane that may hold held bytes.
func DefaultOptions(depth int, held int64) Options {
	return Options{
		Depth: depth, HeldBytes: held, KeepInDoubt: time.Second,
		RetryMin: 20 * time.Millisecond, RetryMax: 2 * time.Second,
		ParkMin: 5 * time.Second, ParkMax: 5 * time.Minute,
		SettleTime: 250 * time.Millisecond, ForeignTime: 5 * time.Second,
		MaxSequence: math.MaxInt32,
	}
}

// Position is one point of the copy.
type Position struct {
	Src      int64 // next source offset
	SrcEpoch int32 // leader epoch of the batch before it, -1 unknown: with it the source notices that its log was cut
	Dst      int64 // next offset on the target, where only we write
	Seq      int64 // records written since the producer epoch began
}

// Counts are what a lane did since it was made. All but Dropped count at the ack.
type Counts struct {
	Records, Batches, Bytes int64
	Dropped                 [3]int64 // by Drop
	Resent                  int64    // entries sent more than once
	Looks                   int64    // look-ups asked of the target
	Doubled                 int64    // records that may stand twice on the target
	Skipped                 int64    // source offsets that retention took before we read them
	Foreign                 int64    // acks whose base offset was not the expected one
}

// Drop says why a batch was not forwarded.
type Drop uint8

const (
	DropControl Drop = iota
	DropAborted
	DropEmpty
)

func (d Drop) String() string { return [...]string{"control", "aborted", "empty"}[d] }

// ActionKind names what the shell is asked to do.
type ActionKind uint8

const (
	Send      ActionKind = iota // hand Entry to the stream; one Completion will answer
	OpenSink                    // bind the lane to its leader's connection anew
	CloseSink                   // give the stream up; what it has not written comes back Unsent
	Look                        // ask the target what it holds for Identity; Scan from the acked offset if Scan is set
	Seek                        // read from Src under Gen; SrcEpoch is the leader epoch of what was read before it
	Ask                         // fetch again
	Hold                        // fetch no more
	Bounds                      // ask the source for log start and end: SourceBounds answers
	Save                        // the position must be stored before anything else is sent: Saved answers
	Report                      // Text is for the log; Loss, if set, is for the ledger
)

// Action is one thing for the shell to do.
type Action struct {
	Kind  ActionKind
	Entry *Entry
	Src   int64
	Epoch int32
	Gen   uint32
	Scan  bool
	Text  string
	Bad   bool // Report: an operator has to act
}

// Machine is the state of a lane. It is not safe for concurrent use.
type Machine struct {
	opts   Options
	id     batch.Identity // Sequence unused
	shared bool           // others write to the target partition too
	state  State
	reason Reason
	detail string // the broker's words, or what differs

	ack       Position // contiguous acknowledged prefix
	tip       Position // Src and Seq behind the last numbered batch
	read      int64    // source offset that the next delivered batch should start at
	readEpoch int32    // leader epoch of the batch before it
	gen       uint32   // generation of the source's cursor
	sentSeq   int64    // behind the last record that this lane sent in this epoch
	walk      int64    // sequences below this are on the target already; batches up to it are counted, not sent

	pending  queue
	window   window
	held     int64
	filter   abortedFilter
	holding  bool  // the source was told to hold
	alone    bool  // the next entry goes alone
	open     bool  // a stream is open
	loose    int64 // at this position, and no other, a batch may begin before it: it is taken whole
	ahead    int64 // the position whose next batch was seen beyond the high watermark, -1 for none
	jump     int64 // retention took what lay before this offset and may have been sent: no walk leads over it; 0 for none
	doubtful bool  // something sent may have been appended
	failed   bool  // the stream returned something: wait for the rest, then resolve
	refusal  Reason
	blocked  Reason // the next batch cannot be forwarded: park once the window is empty
	saving   bool   // waits for Saved
	looking  bool   // a look-up is under way
	stopping bool
	epoch1   bool // the epoch has to be raised once the window is empty

	since   time.Time // when the state was entered
	retryAt time.Time // next try, zero for none
	tries   int
	parks   int
	settled time.Time // when LookResult.End was first seen at settledEnd
	lastEnd int64
	beyond  time.Time // when the end was first seen beyond the expected
	short   time.Time // when the target was first seen to hold less than it acknowledged

	lastLook LookResult

	hw, lso, logStart int64
	counts            Counts
	actions           []Action
}

// NewMachine starts at a position. id is the lane's producer identity; alone must be true unless the target is known to
// hold the identity's state. shared says that others are known to write to the target partition.
func NewMachine(opts Options, id batch.Identity, at Position, shared bool, now time.Time) *Machine {
	m := &Machine{opts: opts, id: id, shared: shared, ack: at, tip: at, sentSeq: at.Seq, read: at.Src, readEpoch: at.SrcEpoch, alone: true, loose: at.Src,
		ahead: -1, hw: -1, lso: -1, logStart: -1, since: now}
	m.gen = 1
	m.act(Action{Kind: OpenSink})
	m.act(Action{Kind: Seek, Src: at.Src, Epoch: at.SrcEpoch, Gen: m.gen})
	m.act(Action{Kind: Ask}) // a cursor begins silent
	return m
}

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
	if m.state == Doubt && m.held > 0 {
		if g := m.since.Add(m.opts.KeepInDoubt); d.IsZero() || g.Before(d) {
			d = g
		}
	}
	return d
}

// Tick lets time pass.
func (m *Machine) Tick(now time.Time) {
	if m.state == Doubt && m.held > 0 && m.window.sent == 0 && !now.Before(m.since.Add(m.opts.KeepInDoubt)) {
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
		m.release(m.window.at(0).Batch)
		m.window.pop()
	}
	m.dropPending()
	m.epoch1 = false // found again, by the batch that is too much
	m.tip = m.ack
	m.seek(m.ack.Src, m.ack.SrcEpoch)
	m.hold()
}

func (m *Machine) dropPending() {
	for m.pending.len() > 0 {
		m.release(m.pending.front().batch)
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
	if d.Code != 0 {
		m.release0(d.Batches)
		m.sourceError(d.Code, now)
		return
	}
	m.hw, m.lso = d.HighWatermark, d.LastStable
	if d.LogStart >= 0 {
		m.logStart = d.LogStart
	}
	m.filter.reset(d.Aborted)
	from := m.read
	for _, b := range d.Batches {
		if d.Gen != m.gen {
			b.Release() // one before it sent us back
			continue
		}
		m.take(b, from, now)
	}
	if m.held >= m.opts.HeldBytes {
		m.hold()
	}
	m.step(now)
}

func (m *Machine) release0(bs []batch.Batch) {
	for _, b := range bs {
		b.Release()
	}
}

// take puts one delivered batch in line, if it is the next. from is where its response began.
func (m *Machine) take(b batch.Batch, from int64, now time.Time) {
	next := b.NextOffset()
	aborted := m.filter.drops(b) // also for what is not taken: a marker closes its transaction
	if m.blocked != NoReason || next <= from {
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
	if b.BaseOffset() < m.read && (m.read != m.loose || next <= m.read) {
		// A fetch may begin inside a batch, but all our positions are ends of batches: this is another log, or a damaged offset.
		m.detail = fmt.Sprintf("batch at source offsets %d-%d, expected %d", b.BaseOffset(), next-1, m.read)
		b.Release()
		m.block(OverlapReason, now)
		return
	}
	m.read, m.readEpoch, m.ahead = next, b.LeaderEpoch(), -1
	m.held += int64(b.Size())
	m.pending.push(b, aborted)
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
	if m.held <= m.opts.HeldBytes/2 && m.blocked == NoReason {
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

// Complete takes the sink's answer for one entry. Answers come in the order of the sends.
func (m *Machine) Complete(c Completion, now time.Time) {
	if m.window.sent == 0 {
		panic("BUG: lane: completion without a send")
	}
	if !m.failed && c.Outcome == Acked && c.Base >= m.ack.Dst {
		m.acked(c)
		m.step(now)
		return
	}
	if !m.failed {
		m.failed = true
		m.refusal = NoReason
		switch {
		case c.Outcome == Acked && c.Base >= 0:
			// Below what was acknowledged: this is not the log that we wrote.
			m.refusal = TargetLostReason
			m.detail = fmt.Sprintf("a batch was appended at target offset %d, %d was acknowledged before", c.Base, m.ack.Dst)
		case c.Outcome == Failed && refused(c.Code):
			m.refusal, m.detail = refusal(c.Code), fmt.Sprintf("source offset %d: %s", c.Entry.Batch.BaseOffset(), answer(c))
		case c.Outcome == Failed:
			m.detail = answer(c)
		}
		m.act(Action{Kind: CloseSink})
		m.open = false
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
	m.release(e.Batch)
	m.window.pop()
	m.alone = false
	m.tries, m.parks = 0, 0
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
	case m.refusal != NoReason:
		m.park(m.refusal, now)
	default: // nothing had left: a new stream will do. The broker may have lost our state with its restart
		m.reason, m.alone = NoReason, true
		m.retryLater(now)
	}
}

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

// LookedUp weighs what the target says about our last write (wire-rules.md 4.1).
func (m *Machine) LookedUp(l LookResult, now time.Time) {
	m.looking = false
	if m.state != Doubt && m.state != HandingOver {
		return
	}
	m.lastLook = l
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
		if m.short.IsZero() {
			m.short = now
		}
		if now.Sub(m.short) < m.opts.ForeignTime {
			m.lookAgain(now)
			return
		}
		m.lost(TargetLostReason, fmt.Sprintf("the target ends at offset %d, %d was acknowledged", l.End, m.ack.Dst), now)
		return
	}
	m.short = time.Time{}
	switch {
	case l.Scanned:
		if known && bySeq > l.Written {
			m.behind(now)
			return
		}
		m.written(l.Written, now)
	case !known:
		// The state is lost, or was never there: the end alone tells, once it stands still.
		if m.settled.IsZero() || m.lastEnd != l.End {
			m.settled, m.lastEnd = now, l.End
		}
		if now.Sub(m.settled) < m.opts.SettleTime {
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
	if m.beyond.IsZero() {
		m.beyond = now
	}
	if now.Sub(m.beyond) >= m.opts.ForeignTime {
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
	l := m.lastLook
	m.settled, m.beyond = time.Time{}, time.Time{}
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
		m.release(e.Batch)
		m.window.pop()
	}
	if m.window.size > 0 && m.ack.Seq != goal {
		m.mismatch(fmt.Sprintf("the target ends inside a batch, %d records behind the acknowledged ones", n), now)
		return
	}
	if l.Scanned && n > 0 && m.ack.Seq == goal {
		m.ack.Dst = l.NextDst
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
	m.alone = true
	m.enter(Starting, NoReason, now)
	if m.window.size == 0 {
		m.tip = m.ack
		if m.pending.len() == 0 && m.read != m.ack.Src {
			m.seek(m.ack.Src, m.ack.SrcEpoch)
		}
	}
	if m.blocked == NoReason && m.held < m.opts.HeldBytes {
		m.ask()
	}
	m.act(Action{Kind: OpenSink})
}

// mismatch runs when the target's words fit nothing that we know: the lane goes back to the acked position under a new
// epoch. What lies behind it may then stand twice, never be missing.
func (m *Machine) mismatch(why string, now time.Time) {
	doubled := max(m.walk, m.sentSeq) - m.ack.Seq
	m.counts.Doubled += doubled
	m.act(Action{Kind: Report, Bad: true, Src: m.ack.Src, Text: fmt.Sprintf(
		"going back to source offset %d under a new epoch: %s; up to %d records may stand twice on the target", m.ack.Src, why, doubled)})
	m.doubtful = false
	m.giveBack()
	m.ack.Dst = max(m.ack.Dst, m.lastLook.End)
	m.tip.Dst = m.ack.Dst
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
	m.act(Action{Kind: Report, Bad: true, Src: m.ack.Src, Text: fmt.Sprintf("parked: %s", r)})
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
	m.dropPending()
	if m.state == Parked || m.state == Starting && m.window.sent == 0 {
		m.finish(now)
		return
	}
	if m.window.sent == 0 && !m.failed && !m.doubtful {
		m.finish(now)
		return
	}
	m.enter(HandingOver, m.reason, now)
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
	return m.window.sent == 0 && !m.doubtful && !m.failed && m.walk <= m.ack.Seq && m.jump == 0
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

// BoundsFailed tells that the source did not say where its log begins and ends; the position is tried again.
func (m *Machine) BoundsFailed(now time.Time) {
	if m.state != Stopped && !m.stopping && m.state != Parked {
		m.seek(m.read, m.readEpoch)
	}
}

// State is where the lane stands.
func (m *Machine) State() State { return m.state }

// Borrowed is the number of entries that the sink still has.
func (m *Machine) Borrowed() int { return m.window.sent }

func (m *Machine) checkpoint() Checkpoint {
	return Checkpoint{Position: m.ack, ID: m.id, Shared: m.shared, Clean: m.Clean()}
}

func (m *Machine) status(s *Status) {
	s.Checkpoint = m.checkpoint()
	s.State, s.Reason, s.Detail, s.Since = m.state, m.reason, m.detail, m.since
	s.Read, s.HighWatermark, s.LastStable, s.LogStart = m.read, m.hw, m.lso, m.logStart
	s.Held, s.Queued, s.Window, s.AtSink = m.held, m.pending.len(), m.window.size, m.window.sent
	s.Counts = m.counts
}
