package lane

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"kferry/batch"
)

// TestModel drives a machine between a source log and a broker with Kafka's sequence rules
// (ProducerStateManager, ProducerAppendInfo), through random faults, stops and restarts, and checks the promises: the target holds what the source's log says is
// to be forwarded, in order, each record once; after an unclean restart records may stand twice, but none is missing and
// none comes before its turn.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed") // decides everything: rapid's own draws lean to small numbers
		for stream := range uint64(5) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, stream)))
			for range 20 + w.rand.IntN(600) {
				w.step()
			}
			w.settle()
		}
	})
}

// record is what a batch's payload stands for: the n-th record of the source batch number batch.
type record struct{ batch, n int }

// logged is a batch in the source's log.
type logged struct {
	wire    []byte
	base    int64
	next    int64
	pid     int64 // of its transaction, -1 for none
	records []record
}

// produced is one request on its way: its bytes are copied, since the entry is used again once it was answered Lost.
type produced struct {
	entry   *Entry
	id      batch.Identity
	count   int32
	records []record
}

// appended is a batch in the target's log.
type appended struct {
	produced
	base   int64
	before *producer // the producer's state in front of it
}

// producer is a broker's memory of our producer id (ProducerStateEntry.java).
type producer struct {
	epoch  int16
	last   int32
	recent []appended // at most 5
}

// world is all that surrounds a machine.
type world struct {
	t    *rapid.T
	rand *rand.Rand
	now  time.Time
	pool *batch.Pool
	opts Options

	source  []logged
	begin   int64 // of the log: retention moves it
	aborted []AbortedTxn
	forward []record // what the target has to hold

	// the target
	log    []appended
	end    int64 // log end
	hw     int64 // high watermark
	state  *producer
	others bool       // others write there too
	late   []produced // still in the sockets of dead connections

	m       *Machine
	copied  []record // what our lanes appended, in order
	exact   bool     // no unclean restart so far
	stored  Checkpoint
	sinkOn  bool
	unsent  []*Entry
	flying  []produced
	answers []Completion // on their way back
	asking  bool
	at      int64 // the cursor
	gen     uint32
	fetched *Delivery
	bounds  bool // asked for
	looks   int  // 1 asked, 2 answered by the broker
	look    LookResult
	saving  bool
	recode  []Action // re-encodings under way
	faults  bool
	strange int // batches of ten that have to be re-encoded
	trims   int // times that retention may yet strike
	told    []string
}

const pid = 77

func oneOf[T any](w *world, of ...T) T { return of[w.rand.IntN(len(of))] }

// say notes what happens; it is printed with a failure.
func (w *world) say(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *world) fatal(format string, args ...any) {
	for _, line := range w.told[max(0, len(w.told)-200):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func newWorld(t *rapid.T, random *rand.Rand) *world {
	w := &world{t: t, rand: random, now: time.Unix(1_700_000_000, 0), pool: batch.NewPool(0), exact: true, faults: true}
	w.opts = DefaultOptions(oneOf(w, 1, 2, 5, 20), oneOf[int64](w, 100, 400, 2000))
	w.opts.MaxSequence = oneOf[int64](w, math.MaxInt32, 40)
	w.others = w.rand.IntN(4) == 0
	if w.rand.IntN(3) == 0 {
		w.trims = 3
	}
	w.strange = oneOf(w, 0, 2, 5)
	w.makeSource(1 + w.rand.IntN(60))
	w.stored = Checkpoint{Position: Position{SrcEpoch: -1}, ID: batch.Identity{ProducerID: pid}, Shared: w.others}
	w.start(w.stored)
	return w
}

// makeSource writes the source's log: plain data, transactions that end either way, empty batches, offsets that are missing.
func (w *world) makeSource(n int) {
	open := map[int64]int64{} // first offset by producer
	mine := map[int64][]int{} // batches of the open transaction
	dropped := map[int]bool{}
	base := int64(0)
	for i := range n {
		if w.rand.IntN(10) == 0 {
			base += 3
		}
		l := logged{base: base, pid: -1}
		count := 1 + w.rand.Int32N(9)
		b := plain(base, count)
		binary.BigEndian.PutUint32(b.Records, uint32(i))
		txn := 1 + w.rand.Int64N(2)
		switch kind := w.rand.IntN(10); {
		case kind < 5:
		case kind < 7:
			b = inTxn(b, txn, 0)
			if _, ok := open[txn]; !ok {
				open[txn] = base
			}
			mine[txn] = append(mine[txn], i)
			l.pid = txn
		case kind < 9:
			first, ok := open[txn]
			if !ok {
				break
			}
			end := batch.Marker(w.rand.IntN(2))
			b = marker(base, txn, 0, end)
			if end == batch.Abort {
				w.aborted = append(w.aborted, AbortedTxn{ProducerID: txn, FirstOffset: first})
				for _, j := range mine[txn] {
					dropped[j] = true
				}
			}
			delete(open, txn)
			delete(mine, txn)
			count = 0
		default:
			b.NumRecords, b.Records, count = 0, nil, 0
		}
		for j := range int(count) {
			l.records = append(l.records, record{i, j})
		}
		if b.NumRecords > 0 && b.Attributes&control == 0 && w.rand.IntN(10) < w.strange {
			if w.rand.IntN(4) == 0 {
				b.LastOffsetDelta += 2 // compaction took the last offsets; a model's records lie side by side at the front
			} else {
				b.Records = append(b.Records, make([]byte, 100)...) // larger than the target takes
			}
		}
		l.wire = sealed(b)
		l.next = base + int64(b.LastOffsetDelta) + 1
		base = l.next
		w.source = append(w.source, l)
	}
	for i, l := range w.source {
		if !dropped[i] {
			w.forward = append(w.forward, l.records...)
		}
	}
}

func (w *world) sourceEnd() int64 { return w.source[len(w.source)-1].next }

// start makes a lane as the assembly does: a clean checkpoint is gone on with, any other under a new epoch, stored first.
func (w *world) start(c Checkpoint) {
	if c != (Checkpoint{}) && !c.Clean && w.m != nil {
		c.ID.Epoch++
		c.Seq, c.Dst = 0, w.hw
		w.exact = false
	}
	c.Clean = false
	w.stored = c
	w.sinkOn, w.asking, w.fetched, w.looks, w.saving, w.bounds = false, false, nil, 0, false, false
	w.say("start %+v", c)
	w.m = NewMachine(&w.opts, c.ID, c.Position, c.Shared, w.now)
	w.m.SetRules(w.rules(), w.now)
	w.act()
}

// act does what the shell would do.
func (w *world) act() {
	if most := w.opts.HeldBytes + 5*500; w.m.held > most {
		w.fatal("the lane holds %d bytes, at most %d are allowed", w.m.held, most)
	}
	for {
		open := false
		for _, a := range w.m.Actions() {
			w.say("    action %d src %d %s", a.Kind, a.Src, a.Text)
			switch a.Kind {
			case Send:
				if !w.sinkOn {
					w.fatal("send without a stream")
				}
				w.unsent = append(w.unsent, a.Entry)
			case OpenSink:
				open = true
			case CloseSink:
				w.sinkOn = false
				for _, e := range w.unsent {
					w.answers = append(w.answers, Completion{Entry: e, Outcome: Unsent})
				}
				// What was written is answered first, in order, as a sink does.
				w.orderAnswers()
				w.unsent = nil
			case Seek:
				w.at, w.gen = a.Src, a.Gen
				w.asking = !w.m.holding
			case Ask:
				w.asking = true
			case Hold:
				w.asking = false
			case Look:
				w.looks = 1
			case Recode:
				w.recode = append(w.recode, a)
			case Save:
				w.saving = true
			case Bounds:
				w.bounds = true
			case Report:
			}
		}
		if !open {
			return
		}
		if w.sinkOn {
			w.fatal("a stream is opened beside an open one")
		}
		if w.faults && w.rand.IntN(6) == 0 {
			w.m.OpenFailed(w.now)
			continue
		}
		if len(w.flying) > 0 {
			w.fatal("a stream is opened while requests are without an answer")
		}
		w.sinkOn = true
		w.m.Opened(w.now)
	}
}

// orderAnswers puts answers that are not there yet in front of Unsent ones: requests under way are answered in their place.
func (w *world) orderAnswers() {
	if len(w.flying) == 0 {
		return
	}
	// The connection is given up with the stream here; the broker may still take what it has read.
	var back []Completion
	for len(w.answers) > 0 && w.answers[len(w.answers)-1].Outcome == Unsent {
		back = append(back, w.answers[len(w.answers)-1])
		w.answers = w.answers[:len(w.answers)-1]
	}
	w.lose()
	slices.Reverse(back)
	w.answers = append(w.answers, back...)
}

// lose breaks the connection: what it carried is Lost, and may be appended later.
func (w *world) lose() {
	for _, p := range w.flying {
		w.answers = append(w.answers, Completion{Entry: p.entry, Outcome: Lost})
	}
	w.say("%d requests lost", len(w.flying))
	w.late = append(w.late, w.flying...)
	w.flying = nil
}

// step lets one random thing happen.
func (w *world) step() {
	weights := []struct {
		n  int
		do func()
	}{
		{10, w.fetch}, {10, w.deliver}, {10, w.write}, {12, w.serve}, {12, w.answer}, {6, w.lookUp}, {4, w.save},
		{5, w.tick}, {2, w.cut}, {3, w.lateAppend}, {3, w.replicate}, {1, w.failover}, {1, w.forget}, {1, w.store}, {1, w.stop}, {1, w.crash}, {2, w.foreign}, {4, w.answerBounds}, {1, w.trim}, {8, w.recoded},
	}
	total := 0
	for _, x := range weights {
		total += x.n
	}
	n := w.rand.IntN(total)
	for _, x := range weights {
		if n -= x.n; n < 0 {
			x.do()
			break
		}
	}
	w.act()
	if w.m.State() == Stopped && w.m.Borrowed() == 0 {
		w.restart()
	}
}

func (w *world) fetch() {
	if !w.asking || w.fetched != nil {
		return
	}
	if w.at < w.begin {
		w.fetched = &Delivery{Gen: w.gen, Code: kerr.OffsetOutOfRange.Code}
		w.asking = false // until the next seek
		w.say("out of range at %d", w.at)
		return
	}
	d := &Delivery{Gen: w.gen, HighWatermark: w.sourceEnd(), LastStable: w.sourceEnd(), LogStart: 0}
	var wires [][]byte
	first, _ := slices.BinarySearchFunc(w.source, w.at, func(l logged, at int64) int {
		if l.next <= at {
			return -1
		}
		return 1
	})
	last := min(len(w.source), first+w.rand.IntN(6))
	for _, l := range w.source[first:last] {
		wires = append(wires, l.wire)
		w.at = l.next
	}
	d.Aborted = slices.Clone(w.aborted) // a superset, in any order
	w.rand.Shuffle(len(d.Aborted), func(i, j int) { d.Aborted[i], d.Aborted[j] = d.Aborted[j], d.Aborted[i] })
	// Of the transactions that ended before the fetch the broker says nothing.
	d.Aborted = slices.DeleteFunc(d.Aborted, func(a AbortedTxn) bool { return first < len(w.source) && w.ended(a) <= w.source[first].base })
	d.Batches = fetched(w.t, w.pool, wires...)
	w.fetched = d
}

// ended is the offset of the marker that ends a.
func (w *world) ended(a AbortedTxn) int64 {
	for _, l := range w.source {
		b := fetched(w.t, w.pool, l.wire)[0]
		found := b.IsControl() && b.ProducerID() == a.ProducerID && l.base > a.FirstOffset
		b.Release()
		if found {
			return l.base + 1
		}
	}
	return math.MaxInt64
}

func (w *world) deliver() {
	if w.fetched != nil {
		w.m.Deliver(*w.fetched, w.now)
		w.fetched = nil
	}
}

// write sends the next entry of the stream.
func (w *world) write() {
	if len(w.unsent) == 0 {
		return
	}
	e := w.unsent[0]
	w.unsent = w.unsent[1:]
	h := e.Header[:]
	sum := crc32.Checksum(append(slices.Clone(h[21:]), e.Batch.Payload()...), crc32.MakeTable(crc32.Castagnoli))
	if stored := binary.BigEndian.Uint32(h[17:]); stored != sum {
		w.fatal("the checksum of a sent batch is %#x, its bytes give %#x", stored, sum)
	}
	p := produced{entry: e, count: int32(binary.BigEndian.Uint32(h[57:])), id: batch.Identity{ProducerID: int64(binary.BigEndian.Uint64(h[43:])),
		Epoch: int16(binary.BigEndian.Uint16(h[51:])), Sequence: int32(binary.BigEndian.Uint32(h[53:]))}}
	if size := e.Batch.Size(); size > w.rules().MaxBytes {
		w.fatal("a batch of %d bytes goes out, %d are taken", size, w.rules().MaxBytes)
	}
	all := w.source[binary.BigEndian.Uint32(e.Batch.Payload())].records
	first := int(e.Batch.Payload()[4])
	if e.runs == nil && (first != 0 || len(all) != int(p.count)) || first+int(p.count) > len(all) {
		w.fatal("a batch of %d records goes out as %d from the %d-th on", len(all), p.count, first)
	}
	p.records = all[first : first+int(p.count)]
	w.flying = append(w.flying, p)
}

// serve lets the broker take one request and answer it.
func (w *world) serve() {
	if len(w.flying) == 0 {
		return
	}
	p := w.flying[0]
	w.flying = w.flying[1:]
	fault := 0
	if w.faults {
		fault = w.rand.IntN(20)
	}
	c := Completion{Entry: p.entry, Outcome: Failed}
	base := int64(-1)
	switch fault {
	case 1:
		c.Code = kerr.NotEnoughReplicas.Code
	case 2:
		c.Code = kerr.NotLeaderForPartition.Code
	case 3:
		c.Code = kerr.MessageTooLarge.Code
	case 4:
		c.Code = kerr.TransactionalIDAuthorizationFailed.Code
	case 5:
		c.Code = kerr.UnknownServerError.Code
	default:
		base, c.Code = w.append(p)
		if c.Code != 0 {
			break
		}
		switch fault {
		case 6:
			c.Code = kerr.RequestTimedOut.Code
		case 7:
			c.Code = kerr.NotEnoughReplicasAfterAppend.Code
		case 8:
			w.hw = w.end
			c.Outcome, c.Base = Acked, -1
		default:
			w.hw = w.end
			c.Outcome, c.Base = Acked, base
		}
	}
	w.answers = append(w.answers, c)
	if c.Outcome == Failed {
		// The sink ends a stream with the first error.
		w.endStream()
	}
}

func (w *world) endStream() {
	// Requests behind it keep their answers; they stay in flying. What was not written comes back behind them.
	if len(w.flying) == 0 {
		for _, e := range w.unsent {
			w.answers = append(w.answers, Completion{Entry: e, Outcome: Unsent})
		}
		w.unsent = nil
	}
}

// append is the broker's compare-and-append.
func (w *world) append(p produced) (base int64, code int16) {
	if s := w.state; s != nil {
		next := int32((int64(s.last) + 1) & math.MaxInt32)
		switch {
		case p.id.Epoch < s.epoch:
			return 0, kerr.InvalidProducerEpoch.Code
		case p.id.Epoch > s.epoch && p.id.Sequence != 0:
			return 0, kerr.OutOfOrderSequenceNumber.Code
		case p.id.Epoch == s.epoch:
			for _, a := range s.recent {
				if a.id == p.id && a.count == p.count {
					return a.base, 0
				}
			}
			if p.id.Sequence != next {
				return 0, kerr.OutOfOrderSequenceNumber.Code
			}
		}
	}
	a := appended{produced: p, base: w.end, before: w.state}
	s := &producer{epoch: p.id.Epoch, last: p.id.Sequence + p.count - 1}
	if w.state != nil && w.state.epoch == s.epoch {
		s.recent = slices.Clone(w.state.recent)
	}
	s.recent = append(s.recent, a)
	if len(s.recent) > 5 {
		s.recent = s.recent[1:]
	}
	w.state = s
	w.log = append(w.log, a)
	w.end += int64(p.count)
	w.copied = append(w.copied, p.records...)
	w.say("appended %v at %d, hw %d", p, a.base, w.hw)
	w.check()
	return a.base, 0
}

// check compares what the target holds of ours with what it should hold so far.
func (w *world) check() {
	if w.exact {
		if len(w.copied) > len(w.forward) || !slices.Equal(w.copied, w.forward[:len(w.copied)]) {
			w.fatal("the target holds %v, the source %v", w.copied, w.forward)
		}
		return
	}
	seen := make(map[record]bool, len(w.copied))
	n := 0
	for _, r := range w.copied {
		if seen[r] {
			continue
		}
		seen[r] = true
		for n < len(w.forward) && w.forward[n] != r && w.trimmed(w.forward[n]) {
			n++
		}
		if n >= len(w.forward) || w.forward[n] != r {
			w.fatal("record %v stands on the target where %v is due: %v", r, w.forward[min(n, len(w.forward)-1)], w.copied)
		}
		n++
	}
}

func (w *world) answer() {
	if len(w.answers) == 0 {
		return
	}
	c := w.answers[0]
	w.answers = w.answers[1:]
	w.say("answer %d %d base %d", c.Outcome, c.Code, c.Base)
	w.m.Complete(c, w.now)
	w.say("  = %s(%s) %+v tip %+v walk %d", w.m.State(), w.m.reason, w.m.ack, w.m.tip, w.m.walk)
}

// lookUp lets the leader answer a question, and in a later step the lane hear of it: what it hears may be old.
func (w *world) lookUp() {
	switch w.looks {
	case 1:
		w.looks = 2
		w.look = LookResult{End: w.hw, Epoch: -1, Last: -1}
		if s := w.state; s != nil {
			w.look.Epoch = s.epoch
			if s.epoch == w.m.id.Epoch {
				w.look.Known, w.look.Last = true, s.last
			}
		}
		if w.m.shared {
			w.look.Scanned, w.look.NextDst = true, w.m.ack.Dst
			for _, a := range w.log {
				next := a.base + int64(a.count)
				if a.base < w.m.ack.Dst || next > w.hw || a.id.ProducerID != pid || a.id.Epoch != w.m.id.Epoch {
					continue
				}
				if n := SequenceDistance(w.m.ack.Seq, a.id.Sequence+a.count-1); n > w.look.Written {
					w.look.Written, w.look.NextDst = n, next
				}
			}
		}
	case 2:
		w.looks = 0
		if w.faults && w.rand.IntN(5) == 0 {
			w.m.LookFailed("no answer", w.now)
			return
		}
		w.say("looked up %+v", w.look)
		w.m.LookedUp(w.look, w.now)
		w.say("  = %s(%s) %+v tip %+v walk %d", w.m.State(), w.m.reason, w.m.ack, w.m.tip, w.m.walk)
	}
}

// rules are what the target takes: batches of one record at least.
func (w *world) rules() Rules { return Rules{MaxBytes: 150} }

// recoded answers for one re-encoding, in any order: what lies from the plan's start on, in parts of at most three records where
// the whole is too large.
func (w *world) recoded() {
	if len(w.recode) == 0 {
		return
	}
	i := w.rand.IntN(len(w.recode))
	a := w.recode[i]
	w.recode = slices.Delete(w.recode, i, i+1)
	index := binary.BigEndian.Uint32(a.Batch.Payload())
	l := w.source[index]
	first := int(max(0, a.Plan.From-l.base))
	most := len(l.records)
	if a.Batch.Size() > a.Plan.MaxBytes {
		most = 3
	}
	a.Batch.Release()
	var parts []Part
	for ; first < len(l.records); first += most {
		n := min(most, len(l.records)-first)
		b := plain(0, int32(n), 0, 0, 0, 0, byte(first))
		binary.BigEndian.PutUint32(b.Records, index)
		parts = append(parts, Part{Batch: fetched(w.t, w.pool, sealed(b))[0], Runs: []Run{{Src: l.base + int64(first), N: int32(n)}}})
	}
	w.say("recoded %d: source batch %d in %d parts", a.Ticket, index, len(parts))
	w.m.Recoded(a.Ticket, parts, nil, w.now)
}

func (w *world) save() {
	if w.saving {
		w.saving = false
		w.store()
		w.m.Saved(w.now)
	}
}

func (w *world) store() {
	w.stored = w.m.checkpoint()
	w.stored.Clean = false // a lane that runs is not at its end
}

func (w *world) tick() {
	if d := w.m.Deadline(); d.After(w.now) {
		w.now = d
	}
	w.m.Tick(w.now)
}

// cut breaks the connection.
func (w *world) cut() {
	if !w.sinkOn || len(w.flying)+len(w.unsent) == 0 {
		return
	}
	w.lose()
	w.endStream()
}

// lateAppend lets the broker take what a dead connection left in its socket, or forget it.
func (w *world) lateAppend() {
	if len(w.late) == 0 {
		return
	}
	p := w.late[0]
	w.late = w.late[1:]
	if w.rand.IntN(2) == 0 {
		w.late = nil
		return
	}
	if _, code := w.append(p); code == 0 && w.rand.IntN(2) == 0 {
		w.hw = w.end
	}
}

func (w *world) replicate() { w.hw = w.end }

// failover makes a replica the leader that has no more than the high watermark.
func (w *world) failover() {
	w.say("failover")
	w.late = nil // the old leader refuses them
	w.lose()
	w.late = nil
	w.endStream()
	for w.end > w.hw {
		a := w.log[len(w.log)-1]
		w.log = w.log[:len(w.log)-1]
		w.end = a.base
		if a.id.ProducerID == pid {
			w.state = a.before
			w.copied = w.copied[:len(w.copied)-len(a.records)]
		}
	}
}

// forget lets the broker lose the producer's state, between two streams: what protects a pipeline from it (old data goes
// one at a time) is not the machine's business yet.
func (w *world) forget() {
	known := w.m.State() == Doubt || w.end == w.m.ack.Dst // the lane will look, or has nothing to look for
	if known && !w.sinkOn && w.hw == w.end && len(w.late)+len(w.flying)+len(w.answers) == 0 && w.looks == 0 {
		w.say("the broker forgets the producer")
		w.state = nil
		for i := range w.log {
			w.log[i].before = nil
		}
	}
}

// foreign appends a record of somebody else.
func (w *world) foreign() {
	if w.others {
		w.log = append(w.log, appended{produced: produced{id: batch.Identity{ProducerID: 5}, count: 1}, base: w.end})
		w.end++
	}
}

// trim lets the source's retention take a batch or a few.
func (w *world) trim() {
	if w.trims == 0 {
		return
	}
	w.trims--
	to := w.source[w.rand.IntN(len(w.source))].next
	if to <= w.begin || to > w.m.ack.Src+60 {
		return
	}
	w.say("the source begins at %d", to)
	w.begin = to
	w.exact = w.exact && to <= w.m.ack.Src
}

// trimmed says that r is gone from the source.
func (w *world) trimmed(r record) bool { return w.source[r.batch].next <= w.begin }

func (w *world) answerBounds() {
	if w.bounds {
		w.bounds = false
		w.m.SourceBounds(w.begin, w.sourceEnd(), w.now)
		w.say("bounds %d: %+v read %d jump %d", w.begin, w.m.ack, w.m.read, w.m.jump)
	}
}

func (w *world) stop() { w.m.Stop(w.now) }

// crash ends the process; only the stored checkpoint is left.
func (w *world) crash() {
	w.m.Abort(w.now)
	w.act()
	w.lose()
	w.endStream()
	for len(w.answers) > 0 {
		w.answer()
	}
	w.drop()
	if w.m.State() != Stopped || w.m.Borrowed() != 0 {
		w.fatal("aborted, but %s with %d entries at the sink", w.m.State(), w.m.Borrowed())
	}
	w.start(w.stored)
}

// restart goes on after a stop.
func (w *world) restart() {
	w.drop()
	w.start(w.m.checkpoint())
}

func (w *world) drop() {
	for len(w.recode) > 0 {
		w.recoded()
	}
	if w.fetched != nil {
		for _, b := range w.fetched.Batches {
			b.Release()
		}
		w.fetched = nil
	}
	if n := w.pool.InUse(); n != 0 {
		w.fatal("%d bytes of buffers are out after the lane's end: %v", n, w.pool.Open())
	}
}

// settle ends the faults and waits for the copy to be whole, then stops the lane.
func (w *world) settle() {
	w.faults = false
	for round := 0; w.m.ack.Src != w.sourceEnd() || w.m.window.size > 0; round++ {
		if round == 5000 {
			w.fatal("not done: %s(%s) %q at %+v, tip %+v, walk %d", w.m.State(), w.m.reason, w.m.detail, w.m.ack, w.m.tip, w.m.walk)
		}
		for _, do := range []func(){w.lateAppend, w.replicate, w.save, w.answerBounds, w.answer, w.serve, w.write, w.lookUp, w.fetch, w.deliver, w.recoded, w.tick} {
			do()
			w.act()
			if w.m.State() == Stopped && w.m.Borrowed() == 0 {
				w.restart()
			}
		}
	}
	w.check()
	held := make(map[record]bool)
	for _, r := range w.copied {
		held[r] = true
	}
	for _, r := range w.forward {
		if !held[r] && !w.trimmed(r) {
			w.fatal("record %v is missing on the target", r)
		}
	}
	if w.exact && w.m.counts.Doubled != 0 {
		w.fatal("%d records are said to stand twice, and do not", w.m.counts.Doubled)
	}
	w.m.Stop(w.now)
	w.act()
	for w.m.State() != Stopped {
		w.tick()
		w.act()
	}
	if !w.m.Clean() && w.m.jump == 0 {
		w.fatal("the end of an idle lane is not clean")
	}
	if w.exact && !w.others && w.m.ack.Dst != w.end {
		w.fatal("the lane expects target offset %d next, the log ends at %d", w.m.ack.Dst, w.end)
	}
	w.drop()
}

func (p produced) String() string { return fmt.Sprintf("%v+%d", p.id, p.count) }
