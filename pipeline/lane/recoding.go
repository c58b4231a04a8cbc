package lane

import (
	"errors"
	"fmt"
	"time"

	"kferry/batch"
)

// Rules are what the target takes, and what the link wants changed. They may change while a lane runs: see Machine.SetRules.
type Rules struct {
	MaxBytes       int   // of a batch on the wire (max.message.bytes), 0 where it is not known
	KeepAppendTime bool  // records appended under LogAppendTime go out with that time as their own
	Avoid          uint8 // codecs that the target refuses, a bit for each by its number
}

// Recoded names why a batch was re-encoded; it is the label `reason` of kferry_batches_recoded_total.
type Recoded uint8

// The reasons, in the order in which they are looked for: a batch with several counts under the first.
const (
	RecodedOldFormat  Recoded = iota // message format 0 or 1
	RecodedHoles                     // compaction took records out of it
	RecodedCut                       // it begins before the position that the copy starts at
	RecodedTooLarge                  // larger than the target takes: it becomes several
	RecodedAppendTime                // the append time is to be kept
	RecodedCodec                     // the target does not know its compression

	recodedReasons
)

func (r Recoded) String() string {
	return [...]string{"old-format", "holes", "cut", "too-large", "append-time", "codec"}[r]
}

// RecodedReasons is the number of reasons.
const RecodedReasons = int(recodedReasons)

// Plan says how a batch is to be re-encoded.
type Plan struct {
	Rules
	Reason Recoded
	From   int64 // records with lower offsets are left out
}

// Part is one batch that a source batch has become: dense, format 2, base offset 0, without an owner. Its reference moves with it.
type Part struct {
	Batch batch.Batch
	Runs  []Run
}

// Run is a row of records whose offsets lie side by side on both sides: the i-th has source offset Src+i and lies Delta+i behind
// its batch's base offset on the target.
type Run struct {
	Src   int64
	Delta int32
	N     int32
}

// What a Recoder may say of a batch, beside errors that pass by themselves.
var (
	ErrCorrupt   = errors.New("damaged batch")
	ErrTooLarge  = errors.New("a single record is larger than the target takes")
	ErrUndecoded = errors.New("the batch cannot be decoded")
)

// recodeAhead is how many batches of one lane are re-encoded at the same time. More would only hold memory: the workers are few.
const recodeAhead = 4

// recoding is a pending batch on its way through the Recoder. Where the batch lay is kept: once there are parts, they are all that
// is held.
type recoding struct {
	plan   Plan
	ticket uint32 // 0 before it was asked for
	done   bool
	err    error
	parts  []Part
	at     int // parts that have their numbers
	base   int64
	next   int64
	epoch  int32
}

// records counts what is in all parts.
func (r *recoding) records() (n int64) {
	for _, p := range r.parts {
		n += int64(p.Batch.Count())
	}
	return n
}

// planFor says whether b has to be re-encoded, and how. b is not one that is dropped.
func (m *Machine) planFor(b batch.Batch, from int64) (Plan, bool) {
	p := Plan{Rules: m.rules, From: from}
	switch {
	case b.Magic() != 2:
		p.Reason = RecodedOldFormat
	case !b.Dense():
		p.Reason = RecodedHoles
	case b.BaseOffset() < from:
		p.Reason = RecodedCut
	case m.rules.MaxBytes > 0 && b.Size() > m.rules.MaxBytes:
		p.Reason = RecodedTooLarge
	case m.rules.KeepAppendTime && b.HasLogAppendTime():
		p.Reason = RecodedAppendTime
	case m.rules.Avoid&(1<<b.Codec()) != 0:
		p.Reason = RecodedCodec
	default:
		return Plan{}, false
	}
	return p, true
}

// recodeNext asks for the first pending batches that have to be re-encoded.
func (m *Machine) recodeNext() {
	for i := m.pending.head; m.toRecode > 0 && m.recoding < recodeAhead && i < len(m.pending.items); i++ {
		q := &m.pending.items[i]
		r := q.recoding
		if r == nil || r.ticket != 0 {
			continue
		}
		m.ticket++
		r.ticket = m.ticket
		m.toRecode--
		m.recoding++
		q.batch.Retain()
		m.act(Action{Kind: Recode, Batch: q.batch, Plan: r.plan, Ticket: r.ticket})
	}
}

// Recoded answers Recode. The parts' references move here.
func (m *Machine) Recoded(ticket uint32, parts []Part, err error, now time.Time) {
	m.recoding--
	for i := m.pending.head; i < len(m.pending.items); i++ {
		q := &m.pending.items[i]
		r := q.recoding
		if r == nil || r.ticket != ticket {
			continue
		}
		r.done, r.parts, r.err = true, parts, err
		if err == nil {
			for _, p := range parts {
				m.held += int64(p.Batch.Size())
			}
			m.release(q.batch)
			q.batch = batch.Batch{}
			m.counts.Recoded[r.plan.Reason]++
		}
		m.step(now)
		return
	}
	for _, p := range parts { // given up meanwhile
		p.Batch.Release()
	}
	m.step(now)
}

// discard gives back what is held of q.
func (m *Machine) discard(q *queued) {
	r := q.recoding
	if r == nil {
		m.release(q.batch)
		return
	}
	if r.ticket == 0 {
		m.toRecode--
	}
	if r.done && r.err == nil {
		for _, p := range r.parts[r.at:] {
			m.release(p.Batch)
		}
		return
	}
	m.release(q.batch)
}

// notRecoded parks the lane in front of a batch that the Recoder refused.
func (m *Machine) notRecoded(r *recoding) bool {
	reason := UndecodedReason
	switch {
	case errors.Is(r.err, ErrCorrupt):
		reason = CorruptReason
	case errors.Is(r.err, ErrTooLarge):
		reason = TooLargeReason
	}
	detail := fmt.Sprintf("batch at source offsets %d-%d: %v", r.base, r.next-1, r.err)
	m.dropPending()
	m.detail = detail
	m.blocked = reason
	m.hold()
	return false
}

// avoid has the codec of the refused entry, the first of the window, left out from now on. False if that is nothing new.
func (m *Machine) avoid(now time.Time) bool {
	codec := m.window.at(0).Batch.Codec()
	if codec == batch.None || m.rules.Avoid&(1<<codec) != 0 {
		return false
	}
	m.rules.Avoid |= 1 << codec
	m.act(Action{Kind: Report, Src: m.ack.Src, Text: fmt.Sprintf("the target does not take %s: batches are compressed anew", codec)})
	m.giveBack()
	m.reason, m.detail, m.alone = NoReason, "", true
	m.retryLater(now)
	return true
}

// midway says whether a source batch stands on the target, or with the sink, in part.
func (m *Machine) midway() bool {
	if n := m.window.sent; n > 0 {
		return m.window.at(n - 1).more
	}
	return m.ack.Seq != m.whole.Seq
}

// SetRules changes what the target takes. Batches that have no numbers yet are judged anew: they are read again.
func (m *Machine) SetRules(r Rules, now time.Time) {
	r.Avoid |= m.rules.Avoid
	if r == m.rules {
		return
	}
	m.rules = r
	if m.state == Stopped || m.stopping || m.pending.len() == 0 {
		return
	}
	if q := m.pending.front(); q.recoding != nil && q.recoding.at > 0 {
		return // its parts belong together; what follows is judged by the old rules, and refused at worst
	}
	blocked := m.blocked
	m.dropPending()
	m.blocked = blocked
	if m.blocked == NoReason {
		m.seek(m.tip.Src, m.tip.SrcEpoch)
	}
	m.step(now)
}
