package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// sender writes to one broker over one connection at a time.
type sender struct {
	sink   *Sink
	broker int32
	log    *slog.Logger
	wake   chan struct{}

	mu         sync.Mutex
	streams    map[*stream]struct{} // all that are bound here and not dead
	ready      []*stream            // those with entries to send, in turn
	readyBytes int                  // queued in all of them
	flying     []*flight            // requests without an answer, oldest first
	flyingByte int                  // their batches' bytes
	free       []*flight
	spare      []*stream // the array that ready is built in next
	slots      map[slotKey]*slot
	flightNo   uint64
	pauseUntil time.Time // the broker's quota asked for silence until then
	ended      bool
}

// slot is a target partition on this connection; flightNo is the last request that held a batch for it.
type slot struct{ flightNo uint64 }

type slotKey struct {
	topic     *topicRef
	partition int32
}

// flight is one request under way.
type flight struct {
	items  []item
	bytes  int
	unsent bool // not a byte of it left
}

func newSender(s *Sink, broker int32) *sender {
	return &sender{sink: s, broker: broker, log: s.log.With("broker", broker),
		wake: make(chan struct{}, 1), streams: make(map[*stream]struct{}), slots: make(map[slotKey]*slot)}
}

func (s *sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run connects whenever there is something to send, until ctx ends. Then every stream is dead and every entry answered.
func (s *sender) run(ctx context.Context) {
	attempt := 0
	for s.wait(ctx) {
		conn, err := s.sink.cluster.Dial(ctx, s.broker)
		if err == nil {
			attempt = 0
			err = s.serve(ctx, conn)
		}
		s.fail(lane.Lost)
		if ctx.Err() != nil {
			break
		}
		if cluster.Fatal(err) {
			s.sink.give(err)
			break
		}
		s.sink.stale()
		if attempt > 0 || !errors.Is(err, cluster.ErrClosed) {
			s.log.Warn("connection to the target broke", "err", err)
		}
		pause := time.NewTimer(s.sink.opts.Backoff.Next(rand.Float64, attempt))
		attempt++
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.fail(lane.Lost)
}

// wait blocks until an entry is queued. It returns false when ctx ends.
func (s *sender) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		s.mu.Lock()
		n := s.readyBytes
		s.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	return false
}

// fail ends all streams: what was written becomes outcome, what was not comes back Unsent.
func (s *sender) fail(outcome lane.Outcome) {
	s.mu.Lock()
	var done []item
	var how []lane.Outcome
	for _, f := range s.flying {
		for _, it := range f.items {
			done = append(done, it)
			if f.unsent {
				how = append(how, lane.Unsent)
			} else {
				how = append(how, outcome)
			}
		}
	}
	s.flying, s.flyingByte = nil, 0
	for st := range s.streams {
		for _, e := range st.endLocked() {
			done = append(done, item{stream: st, entry: e})
			how = append(how, lane.Unsent)
		}
	}
	s.ready = nil
	s.mu.Unlock()
	for i, it := range done {
		it.stream.to(lane.Completion{Entry: it.entry, Outcome: how[i]})
	}
}

// serve sends and receives on conn until either side fails, then resets it: after a FIN the broker would still append
// what it has read.
func (s *sender) serve(ctx context.Context, conn *cluster.Conn) error {
	defer conn.Close()
	defer conn.Reset()
	defer conn.Bind(ctx)()
	version, ok := conn.Version(keyProduce)
	if !ok {
		return fmt.Errorf("produce to %s: %w", conn, cluster.ErrUnsupported)
	}
	received := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { received <- s.receive(conn) })
	err := s.send(ctx, conn, version, received)
	conn.Reset()
	wg.Wait()
	return err
}

// send builds requests from what is ready and writes them, within the budget.
func (s *sender) send(ctx context.Context, conn *cluster.Conn, version int16, received <-chan error) error {
	opts := &s.sink.opts
	var req request
	var last time.Time
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	expires := conn.Expires()
	for {
		s.mu.Lock()
		now := time.Now()
		expired := !expires.IsZero() && now.After(expires)
		idle := !last.IsZero() && s.readyBytes == 0 && now.Sub(last) >= opts.IdleTimeout
		if (expired || idle) && len(s.flying) == 0 {
			s.mu.Unlock()
			return fmt.Errorf("replace the connection to %s before the broker ends it: %w", conn, cluster.ErrClosed)
		}
		pause := s.pauseLocked(now, last)
		var f *flight
		if pause == 0 && !expired {
			f = s.takeLocked()
		}
		s.mu.Unlock()
		if f == nil {
			if pause <= 0 {
				pause = opts.IdleTimeout
			}
			timer.Reset(pause)
			select {
			case <-s.wake:
			case <-timer.C:
			case err := <-received:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		if _, err := conn.Write(keyProduce, version, req.build(version, f.items, opts.AckTimeout)); err != nil {
			s.mu.Lock()
			f.unsent = errors.Is(err, cluster.ErrNotSent)
			s.mu.Unlock()
			return err
		}
		last = now
	}
}

// pauseLocked says how long nothing may be sent: 0 for now, -1 until something happens.
func (s *sender) pauseLocked(now, last time.Time) time.Duration {
	opts := &s.sink.opts
	switch {
	case s.readyBytes == 0:
		return -1
	case now.Before(s.pauseUntil):
		return s.pauseUntil.Sub(now)
	case len(s.flying) == 0:
		return 0
	case len(s.flying) >= opts.MaxRequests:
		return -1
	case s.flyingByte+min(opts.RequestBytes, opts.BudgetBytes/2) > opts.BudgetBytes:
		return -1 // a request is short for lack of data, never for lack of budget
	case s.readyBytes >= opts.RequestBytes:
		return 0
	}
	if gap := opts.LingerGap - now.Sub(last); gap > 0 {
		return gap
	}
	return 0
}

// takeLocked makes a flight of one entry of each ready stream, up to RequestBytes, and puts it in the air: an answer
// cannot come before.
func (s *sender) takeLocked() *flight {
	if len(s.ready) == 0 {
		return nil
	}
	var f *flight
	if n := len(s.free); n > 0 {
		f, s.free = s.free[n-1], s.free[:n-1]
	} else {
		f = new(flight)
	}
	s.flightNo++
	wait, full := s.spare[:0], false
	for _, st := range s.ready {
		if st.dead || st.emptyLocked() {
			st.queued = false
			continue
		}
		// Two batches of one partition in a request would cost us the first one; two lanes may write to one partition.
		if full || st.slot.flightNo == s.flightNo {
			wait = append(wait, st)
			continue
		}
		if len(f.items) > 0 && f.bytes+st.queue[st.head].Size() > s.sink.opts.RequestBytes {
			full = true
			wait = append(wait, st)
			continue
		}
		st.slot.flightNo = s.flightNo
		e := st.nextLocked()
		f.items = append(f.items, item{stream: st, entry: e})
		f.bytes += e.Size()
	}
	// Those that had to wait go first next time; those that have more follow in turn.
	for _, it := range f.items {
		if it.stream.emptyLocked() {
			it.stream.queued = false
		} else {
			wait = append(wait, it.stream)
		}
	}
	s.spare, s.ready = s.ready[:0], wait
	if len(f.items) == 0 {
		s.free = append(s.free, f)
		return nil
	}
	s.flying = append(s.flying, f)
	s.flyingByte += f.bytes
	return f
}

// receive reads answers until the connection ends.
func (s *sender) receive(conn *cluster.Conn) error {
	for {
		resp, err := conn.Read()
		if err != nil {
			return err
		}
		s.mu.Lock()
		f := s.flying[0]
		s.mu.Unlock()
		next := 0
		refresh := false
		throttle, err := walk(resp.Body, resp.Version, func(a *answer) {
			it := f.find(a, resp.Version, &next)
			if it == nil {
				return // a partition that was not asked for, or twice
			}
			it.done = true
			refresh = s.complete(it, a) || refresh
		})
		resp.Buf.Release()
		if err != nil {
			s.drop(f)
			return fmt.Errorf("decode Produce response of %s: %w", conn, err)
		}
		s.drop(f)
		if refresh {
			s.sink.stale()
		}
		if throttle > 0 {
			conn.Throttled(throttle)
			s.mu.Lock()
			s.pauseUntil = time.Now().Add(throttle)
			s.mu.Unlock()
			s.sink.throttled(throttle)
		}
		s.signal()
	}
}

// drop takes an answered flight out of the air. A partition that the answer left out is in doubt.
func (s *sender) drop(f *flight) {
	for i := range f.items {
		if it := &f.items[i]; !it.done {
			it.stream.to(lane.Completion{Entry: it.entry, Outcome: lane.Lost})
			it.stream.Close()
		}
	}
	s.mu.Lock()
	s.flying[0] = nil
	s.flying = s.flying[1:]
	s.flyingByte -= f.bytes
	clear(f.items)
	f.items, f.bytes, f.unsent = f.items[:0], 0, false
	if len(s.free) < 64 {
		s.free = append(s.free, f)
	}
	s.mu.Unlock()
}

// find gives the item that an answer speaks of. Answers mostly come in the order of the request, from next on.
func (f *flight) find(a *answer, version int16, next *int) *item {
	for range f.items {
		if *next >= len(f.items) {
			*next = 0
		}
		it := &f.items[*next]
		*next++
		if it.stream.partition != a.partition || it.done {
			continue
		}
		if version >= produceTopicID && it.stream.topic.id == a.id || version < produceTopicID && it.stream.topic.name == string(a.name) {
			return it
		}
	}
	return nil
}

// complete hands one answer to its lane and says whether the metadata is stale.
func (s *sender) complete(it *item, a *answer) (refresh bool) {
	if a.code == 0 {
		it.stream.to(lane.Completion{Entry: it.entry, Outcome: lane.Acked, Base: a.base})
		return false
	}
	it.stream.to(lane.Completion{Entry: it.entry, Outcome: lane.Failed, Code: a.code, Message: a.message})
	it.stream.Close()
	return true
}
