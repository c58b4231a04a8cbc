package lane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"kferry/batch"
)

// source is one partition's log, and the cursor of one lane in it.
type source struct {
	pool *batch.Pool
	log  []batch.Batch
	to   func(Delivery)

	mu     sync.Mutex
	at     int64
	gen    uint32
	asking bool
	closed bool
	code   int16 // the next fetch's error
	wake   chan struct{}
}

func (s *source) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *source) MoveTo(src int64, _ int32, gen uint32) { s.change(func() { s.at, s.gen = src, gen }) }
func (s *source) Ask()                                  { s.change(func() { s.asking = true }) }
func (s *source) Hold()                                 { s.change(func() { s.asking = false }) }
func (s *source) Close()                                { s.change(func() { s.closed = true }) }

func (s *source) Bounds(context.Context) (start, end int64, err error) {
	return 0, s.end(), nil
}

func (s *source) end() int64 { return s.log[len(s.log)-1].NextOffset() }

// run delivers up to three batches at a time, until Close.
func (s *source) run() {
	for range s.wake {
		for {
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				return
			}
			d := Delivery{Gen: s.gen, Code: s.code, HighWatermark: s.end(), LastStable: s.end()}
			if !s.asking || s.code == 0 && s.at == s.end() {
				s.mu.Unlock()
				break
			}
			if s.code == 0 {
				for _, b := range s.log {
					if b.BaseOffset() >= s.at && len(d.Batches) < 3 {
						b.Retain()
						d.Batches = append(d.Batches, b)
						s.at = b.NextOffset()
					}
				}
			}
			s.code = 0
			s.mu.Unlock()
			s.to(d)
		}
	}
}

// target is a partition that appends in sequence, and fails now and then.
type target struct {
	faults *rand.Rand      // nil for none
	block  <-chan struct{} // requests wait for it to be closed; nil for no wait
	look   func(context.Context) error

	wg      sync.WaitGroup // streams
	mu      sync.Mutex
	epoch   int16
	last    int32
	bases   []byte // first payload byte of each batch, in order
	end     int64
	opened  int
	closed  int
	refuses int16 // every request is refused with this code
}

type boundStream struct {
	t    *target
	to   func(Completion)
	mu   sync.Mutex
	todo []*Entry
	dead bool
	over bool
	wake chan struct{}
}

func (t *target) Open(to func(Completion)) (Stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faults != nil && t.faults.IntN(4) == 0 {
		return nil, errors.New("no leader")
	}
	t.opened++
	s := &boundStream{t: t, to: to, wake: make(chan struct{}, 1)}
	t.wg.Go(s.run)
	return s, nil
}

func (s *boundStream) Send(entries []*Entry) {
	s.mu.Lock()
	s.todo = append(s.todo, entries...)
	s.mu.Unlock()
	s.signal()
}

func (s *boundStream) Budget() int { return 1 << 20 }

func (s *boundStream) Close() {
	s.t.mu.Lock()
	s.t.closed++
	s.t.mu.Unlock()
	s.mu.Lock()
	s.dead, s.over = true, true
	s.mu.Unlock()
	s.signal()
}

func (s *boundStream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *boundStream) run() {
	for range s.wake {
		for {
			s.mu.Lock()
			if len(s.todo) == 0 {
				over := s.over
				s.mu.Unlock()
				if over {
					return
				}
				break
			}
			e, dead := s.todo[0], s.dead
			s.todo = s.todo[1:]
			s.mu.Unlock()
			c := Completion{Entry: e, Outcome: Unsent}
			if !dead {
				if s.t.block != nil {
					<-s.t.block
				}
				time.Sleep(time.Millisecond) // the network: fake time
				c = s.t.append(e)
			}
			if c.Outcome != Acked {
				s.mu.Lock()
				s.dead = true
				s.mu.Unlock()
			}
			s.to(c)
		}
	}
}

func (t *target) append(e *Entry) Completion {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Completion{Entry: e, Outcome: Failed, Code: t.refuses}
	fault := 0
	if t.faults != nil {
		fault = t.faults.IntN(12)
	}
	if c.Code != 0 {
		return c
	}
	if fault == 1 {
		c.Outcome = Lost // on the way there
		return c
	}
	epoch, seq := int16(binary.BigEndian.Uint16(e.Header[51:])), int32(binary.BigEndian.Uint32(e.Header[53:]))
	if epoch == t.epoch && seq != t.last+1 || epoch > t.epoch && seq != 0 || epoch < t.epoch {
		c.Code = 45 // OUT_OF_ORDER_SEQUENCE_NUMBER
		return c
	}
	n := int32(binary.BigEndian.Uint32(e.Header[57:]))
	base := t.end
	t.epoch, t.last, t.end = epoch, seq+n-1, t.end+int64(n)
	t.bases = append(t.bases, e.Batch.Payload()[0])
	switch fault {
	case 2:
		c.Outcome = Lost // on the way back
	case 3:
		c.Code = 7 // REQUEST_TIMED_OUT
	default:
		c.Outcome, c.Code, c.Base = Acked, 0, base
	}
	return c
}

func (t *target) Look(ctx context.Context, id batch.Identity, _ Position, _ bool) (LookResult, error) {
	if t.look != nil {
		if err := t.look(ctx); err != nil {
			return LookResult{}, err
		}
	}
	time.Sleep(time.Millisecond) // the network: fake time
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.faults != nil && t.faults.IntN(4) == 0 {
		return LookResult{}, errors.New("no leader")
	}
	r := LookResult{End: t.end, Epoch: t.epoch, Last: -1}
	if t.epoch == id.Epoch && t.last >= 0 {
		r.Known, r.Last = true, t.last
	}
	return r, nil
}

// rig is a lane between a source of n batches of two records and a target.
type rig struct {
	*Lane
	source *source
	target *target
	saved  []Checkpoint // guarded by target.mu
	log    bytes.Buffer
	want   []byte
	wg     sync.WaitGroup
	cancel context.CancelFunc
	ended  chan struct{}
	told   atomic.Int32 // how often the lane said that it has moved
}

func newRig(t *testing.T, n int, opts Options, target *target) *rig {
	pool := batch.NewPool(0)
	r := &rig{target: target, ended: make(chan struct{})}
	var wires [][]byte
	for i := range n {
		wires = append(wires, sealed(plain(int64(i)*2, 2, byte(i))))
		r.want = append(r.want, byte(i))
	}
	target.last = -1
	r.source = &source{pool: pool, log: fetched(t, pool, wires...), wake: make(chan struct{}, 1)}
	m := NewMachine(&opts, batch.Identity{ProducerID: pid}, Position{SrcEpoch: -1}, false, time.Now())
	save := func(_ context.Context, c Checkpoint) error {
		target.mu.Lock()
		defer target.mu.Unlock()
		r.saved = append(r.saved, c)
		if len(r.saved) == 1 {
			return errors.New("the state topic has no leader")
		}
		return nil
	}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.Lane = New(m, r.source, target, nil, save, func() *slog.Logger { return log })
	r.Notify(func() { r.told.Add(1) })
	r.source.to = r.Lane.Deliver
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.wg.Go(r.source.run)
	var lane sync.WaitGroup
	r.Start(ctx, &lane)
	abort := context.AfterFunc(ctx, r.Abort)
	r.wg.Go(func() {
		defer close(r.ended)
		lane.Wait()
		abort()
	})
	return r
}

// until waits for the lane's status to fulfil ok, in fake time.
func (r *rig) until(t *testing.T, what string, ok func(Status) bool) Status {
	t.Helper()
	for range 100_000 {
		synctest.Wait()
		if s := r.Status(); ok(s) {
			return s
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never %s: %+v", what, r.Status())
	return Status{}
}

// end waits for Run and looks for what is left behind.
func (r *rig) end(t *testing.T) Status {
	t.Helper()
	<-r.ended
	r.cancel()
	r.wg.Wait()
	r.target.wg.Wait()
	r.target.mu.Lock()
	defer r.target.mu.Unlock()
	if r.target.opened != r.target.closed {
		t.Errorf("%d streams were opened, %d closed", r.target.opened, r.target.closed)
	}
	// A delivery that comes too late is given back at once.
	late := r.source.log[0]
	late.Retain()
	r.Deliver(Delivery{Batches: []batch.Batch{late}})
	for _, b := range r.source.log {
		b.Release()
	}
	if n := r.source.pool.InUse(); n != 0 {
		t.Errorf("%d bytes of buffers not released: %v", n, r.source.pool.Open())
	}
	s := r.Status()
	if s.State != Stopped || s.AtSink != 0 || s.Held != 0 || s.Queued != 0 {
		t.Errorf("after Run: %+v", s)
	}
	return s
}

// The whole way under faults, with deliveries, completions and answers from goroutines of their own.
func TestLaneCopies(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			opts := DefaultOptions(1+int(seed%7), 600)
			if seed%2 == 0 {
				opts.MaxSequence = 50
			}
			r := newRig(t, 100, opts, &target{faults: rand.New(rand.NewPCG(seed, 0))})
			s := r.until(t, "done", func(s Status) bool { return s.Position.Src == 200 })
			if s.CaughtUp.IsZero() {
				t.Error("at the source's end, but never caught up")
			}
			r.Stop()
			s = r.end(t)
			if !s.Clean || s.Position.Dst != 200 || s.Counts.Records != 200 || s.Counts.Doubled != 0 || s.Counts.Foreign != 0 {
				t.Errorf("seed %d: ended with %+v", seed, s)
			}
			if diff := cmp.Diff(r.want, r.target.bases); diff != "" {
				t.Errorf("seed %d: batches on the target (-want +got):\n%s", seed, diff)
			}
			if opts.MaxSequence == 50 {
				// 25 batches fill an epoch; the first store fails and is tried again.
				if len(r.saved) != 4 || r.saved[1] != r.saved[0] || s.ID.Epoch != 3 {
					t.Errorf("seed %d: stored %+v, ended in epoch %d", seed, r.saved, s.ID.Epoch)
				}
			}
		})
	}
}

// Nothing goes out under a new epoch before it is stored.
// Whoever stores positions is told when there is something to store, the first time too.
func TestLaneTellsOfMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 10, DefaultOptions(5, 10_000), &target{})
		r.until(t, "done", func(s Status) bool { return s.Position.Src == 20 })
		if told := r.told.Load(); told != 1 {
			t.Errorf("told %d times before anyone looked, want once", told)
		}
		if cp, news := r.Moved(); !news || cp.Src != 20 {
			t.Errorf("moved: %v, to %+v", news, cp)
		}
		if cp, news := r.Moved(); news {
			t.Errorf("moved again, to %+v", cp)
		}
		r.Stop()
		r.end(t)
	})
}

func TestLaneSavesEpochFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := DefaultOptions(5, 10_000)
		opts.MaxSequence = 4
		r := newRig(t, 4, opts, &target{})
		r.until(t, "storing", func(s Status) bool { return s.ID.Epoch == 1 })
		r.target.mu.Lock()
		if r.target.epoch != 0 || len(r.saved) != 1 || r.saved[0].ID.Epoch != 1 || r.saved[0].Seq != 0 || r.saved[0].Src != 4 || r.saved[0].Clean {
			t.Errorf("the first store failed; stored %+v, the target is at epoch %d", r.saved, r.target.epoch)
		}
		r.target.mu.Unlock()
		r.until(t, "done", func(s Status) bool { return s.Position.Src == 8 })
		r.Stop()
		r.end(t)
	})
}

// Run returns only when the sink has answered for what it borrows; the buffers live until then.
func TestLaneContextEndsWithEntriesBorrowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		r := newRig(t, 10, DefaultOptions(5, 10_000), &target{block: block})
		r.until(t, "sending", func(s Status) bool { return s.AtSink == 1 })
		r.cancel()
		synctest.Wait()
		select {
		case <-r.ended:
			t.Fatal("Run returned while the sink borrows an entry")
		default:
		}
		if s := r.Status(); s.State != Stopped || s.Held != 500 { // the window; what was queued behind it went back
			t.Errorf("while the sink borrows an entry: %+v", s)
		}
		close(block)
		if s := r.end(t); s.Clean || s.Position.Src != 0 {
			t.Errorf("ended with %+v", s)
		}
	})
}

// A stop while a look-up is under way waits for the answer, if something is in doubt; the end of ctx ends the look-up too.
func TestLaneStopsWhileLooking(t *testing.T) {
	for _, abort := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			answer := make(chan struct{})
			target := &target{faults: rand.New(rand.NewPCG(1, 1)), look: func(ctx context.Context) error {
				select {
				case <-answer:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}}
			r := newRig(t, 100, DefaultOptions(5, 10_000), target)
			r.until(t, "in doubt", func(s Status) bool { return s.State == Doubt })
			r.Stop()
			s := r.until(t, "handing over", func(s Status) bool { return s.State == HandingOver })
			if abort {
				r.cancel()
				if s := r.end(t); s.Clean {
					t.Errorf("ended clean with the answer missing: %+v", s)
				}
				return
			}
			if s.Clean {
				t.Errorf("clean while in doubt: %+v", s)
			}
			close(answer)
			s = r.end(t)
			if !s.Clean || s.Position.Src != int64(2*len(r.target.bases)) {
				t.Errorf("ended with %+v, the target holds %d batches", s, len(r.target.bases))
			}
		})
	}
}

// A parked lane says so once in the log, with the cure, tries again by itself, and stops though its try is not answered.
func TestLaneParks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := make(chan struct{}, 1)
		r := newRig(t, 10, DefaultOptions(5, 10_000), &target{refuses: 10, look: func(ctx context.Context) error { // MESSAGE_TOO_LARGE
			select {
			case looks <- struct{}{}:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}})
		s := r.until(t, "parked", func(s Status) bool { return s.State == Parked })
		if s.Reason != TooLargeReason || s.Detail != "source offset 0: MESSAGE_TOO_LARGE" || s.Held != 0 {
			t.Errorf("parked with %+v", s)
		}
		text := r.log.String()
		if n := strings.Count(text, "parked: too-large"); n != 1 || !strings.Contains(text, `cure="raise max.message.bytes`) {
			t.Errorf("said %d times that it is parked: %s", n, text)
		}
		r.target.mu.Lock()
		r.target.refuses = 0
		r.target.mu.Unlock()
		r.until(t, "its next try", func(s Status) bool { return s.State == Doubt })
		if since := time.Since(s.Since); since < 5*time.Second || since > 6*time.Second {
			t.Errorf("the next try came after %v", since)
		}
		// The first look-up is answered, the second, for the target knows no state yet, is not.
		time.Sleep(time.Second)
		r.Stop()
		if s := r.end(t); !s.Clean || s.Position.Src != 0 {
			t.Errorf("ended with %+v", s)
		}
	})
}

// What others find parks a lane; what concerns the position is asked of the source.
func TestLaneParkAndBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 10, DefaultOptions(5, 10_000), &target{})
		r.source.change(func() { r.source.code = 1 }) // OFFSET_OUT_OF_RANGE, though it lies inside: asked again
		r.until(t, "done", func(s Status) bool { return s.Position.Src == 20 })
		r.Park(RecreatedReason, "another id")
		s := r.until(t, "parked", func(s Status) bool { return s.State == Parked })
		if s.Reason != RecreatedReason || s.Detail != "another id" {
			t.Errorf("parked with %+v", s)
		}
		r.Stop()
		if s := r.end(t); !s.Clean || s.Counts.Skipped != 0 || !slices.Equal(r.target.bases, r.want) {
			t.Errorf("ended with %+v", s)
		}
	})
}
