package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
	"kferry/tuning"
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
	budget     tuning.BudgetSizer   // how many those may be
	allowed    atomic.Int64         // the same, for others
	free       []*flight
	spare      []*stream // the array that ready is built in next
	slots      map[slotKey]*slot
	flightNo   uint64
	pauseUntil time.Time // the broker's quota asked for silence until then
	down       bool      // the last dial failed: no stream is bound before one succeeds, so that lanes do not hold what cannot go
	mute       bool      // what was sent has no answer for long: nothing more is taken before one comes, so that lanes do not hold what cannot go
	heard      time.Time // of the last answer
	blocked    bool      // in a dial or a write
	slow       *time.Timer
	wanted     bool // a stream was asked for since
	ended      bool
}

// slot is a target partition on this connection; flightNo is the last request that held a batch for it.
type slot struct{ flightNo uint64 }

// slotKey names it as requests below version 13 do: there, a topic that was made anew is the same one.
type slotKey struct {
	topic     string
	partition int32
}

func newSender(s *Sink, broker int32) *sender {
	x := &sender{sink: s, broker: broker, log: s.log.With("broker", broker),
		wake: make(chan struct{}, 1), streams: make(map[*stream]struct{}), slots: make(map[slotKey]*slot),
		budget: tuning.BudgetSizer{Min: min(leastBudget, s.opts.BudgetBytes), Max: s.opts.BudgetBytes}}
	x.allowed.Store(int64(x.budget.Bytes()))
	return x
}

// leastBudget is what may be under way on the shortest path, in bytes: room for two requests that are large enough.
const leastBudget = 1 << 20

func (s *sender) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run connects whenever there is something to send, until ctx ends. Then every stream is dead and every entry answered.
func (s *sender) run(ctx context.Context) {
	cluster.StageSink.Enter()
	attempt := 0
	for s.wait(ctx) {
		s.block(true)
		conn, err := s.sink.cluster.DialWith(ctx, s.broker, cluster.ConnOptions{
			MaxOutstanding: s.sink.opts.MaxRequests, RequestTimeout: s.sink.opts.AckTimeout + s.sink.opts.AckTimeout/2})
		answered := false
		s.block(false)
		s.mu.Lock()
		s.down, s.wanted, s.mute = err != nil, false, false
		s.mu.Unlock()
		if err == nil {
			answered, err = s.serve(ctx, conn)
		}
		replace := errors.Is(err, errReplace) && ctx.Err() == nil
		if !replace { // else nothing is under way: the streams go on over the next one
			s.fail(lane.Lost)
		}
		if ctx.Err() != nil {
			break
		}
		if cluster.Fatal(err) {
			s.sink.give(err)
			break
		}
		if !replace {
			s.sink.stale()
			s.log.Warn("connection to the target broke", "err", err)
		}
		if answered {
			attempt = 0
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

// wait blocks until an entry is queued, or a stream is asked for while the broker is down. It returns false when ctx ends.
func (s *sender) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		s.mu.Lock()
		dial := s.readyBytes > 0 || s.wanted
		s.mu.Unlock()
		if dial {
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
	defer s.mu.Unlock()
	for _, f := range s.flying {
		how := outcome
		if f.unsent {
			how = lane.Unsent
		}
		for _, it := range f.items {
			it.stream.answerLocked(lane.Completion{Entry: it.entry, Outcome: how})
		}
	}
	s.flying, s.flyingByte, s.mute = nil, 0, false
	for st := range s.streams {
		st.endLocked()
	}
	s.ready = nil
}

// errReplace ends a connection that has to go though nothing is wrong with it; nothing is under way on it.
var errReplace = errors.New("replace the connection before the broker ends it")

// serve sends and receives on conn until either side fails, then resets it: after a FIN the broker would still append
// what it has read. It says whether there was a good answer.
func (s *sender) serve(ctx context.Context, conn *cluster.Conn) (answered bool, err error) {
	defer conn.Close()
	defer conn.Reset()
	defer conn.Bind(ctx)()
	version, ok := conn.Version(keyProduce)
	if !ok {
		return false, fmt.Errorf("produce to %s: %w", conn, cluster.ErrUnsupported)
	}
	received := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { received <- s.receive(conn, &answered) })
	err = s.send(ctx, conn, version, received)
	conn.Reset()
	wg.Wait()
	return answered, err
}

// send builds requests from what is ready and writes them, within the budget.
func (s *sender) send(ctx context.Context, conn *cluster.Conn, version int16, received <-chan error) error {
	opts := &s.sink.opts
	var together []*flight // leave with one write
	var requests []request // their bodies
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
			return errReplace
		}
		pause := s.pauseLocked(now, last)
		silence := s.silenceLocked(now)
		together = together[:0]
		if pause == 0 && !expired && !s.mute {
			together = s.takeTogetherLocked(together)
			for _, f := range together {
				f.sent = now
			}
		}
		s.mu.Unlock()
		if len(together) == 0 {
			if pause <= 0 {
				pause = opts.IdleTimeout
			}
			if silence > 0 {
				pause = min(pause, silence)
			}
			if !expires.IsZero() && !expired {
				pause = min(pause, time.Until(expires)+time.Millisecond)
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
		for len(requests) < len(together) {
			requests = append(requests, request{})
		}
		var err error
		for i, f := range together {
			if _, err = conn.Append(keyProduce, version, requests[i].build(version, f.items, opts.AckTimeout)); err != nil {
				break
			}
		}
		if err == nil {
			s.block(true)
			err = conn.Flush()
			s.block(false)
		}
		for i := range together {
			clear(requests[i].bufs) // holds no released buffer alive
		}
		if err != nil {
			s.mu.Lock()
			for _, f := range together {
				f.unsent = errors.Is(err, cluster.ErrNotSent)
			}
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
	case s.flyingByte+s.requestBytes() > s.budget.Bytes():
		return -1 // a request is short for lack of data, never for lack of budget
	case s.readyBytes >= s.requestBytes():
		return 0
	}
	if gap := opts.LingerGap - now.Sub(last); gap > 0 {
		return gap
	}
	return 0
}

// requestBytes is what a request may hold: there is always room for two in the budget.
func (s *sender) requestBytes() int { return min(s.sink.opts.RequestBytes, s.budget.Bytes()/2) }

// receive reads answers until the connection ends.
func (s *sender) receive(conn *cluster.Conn, answered *bool) error {
	for {
		resp, err := conn.Read()
		if err != nil {
			return err
		}
		throttle, refresh, err := s.land(resp)
		resp.Buf.Release()
		if err != nil {
			return fmt.Errorf("decode Produce response of %s: %w", conn, err)
		}
		*answered = true
		if refresh {
			s.sink.stale()
		}
		if throttle = min(throttle, mostThrottle); throttle > 0 {
			conn.Throttled(throttle)
			s.sink.throttled(throttle)
		}
		s.signal()
	}
}

// mostThrottle bounds what a broker may ask for; quota windows are far shorter.
const mostThrottle = 10 * time.Minute

// land takes the oldest flight out of the air and hands its answers to the lanes. A partition that the response left out is in
// doubt. It says whether an answer speaks of stale metadata.
func (s *sender) land(resp cluster.Response) (throttle time.Duration, refresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, next := s.flying[0], 0
	s.mute, s.heard = false, resp.Done
	if s.pauseUntil.Before(f.sent) { // else it waited for a quota, which says nothing of the path
		s.budget.Observe(resp.Done.Sub(resp.Sent))
		s.allowed.Store(int64(s.budget.Bytes()))
	}
	throttle, err = walk(resp.Body, resp.Version, func(a answer) {
		it := f.find(&a, resp.Version, &next)
		if it == nil {
			return // a partition that was not asked for, or twice
		}
		it.done = true
		c := lane.Completion{Entry: it.entry, Outcome: lane.Acked, Base: a.base}
		if a.code != 0 {
			c = lane.Completion{Entry: it.entry, Outcome: lane.Failed, Code: a.code, Message: a.message}
			refresh = true
		}
		it.stream.answerLocked(c)
	})
	for i := range f.items {
		if it := &f.items[i]; !it.done {
			it.stream.answerLocked(lane.Completion{Entry: it.entry, Outcome: lane.Lost})
		}
	}
	if throttle > 0 {
		s.pauseUntil = time.Now().Add(min(throttle, mostThrottle))
	}
	s.flying = slices.Delete(s.flying, 0, 1) // few: cheaper to move than to make the array anew
	s.flyingByte -= f.bytes
	clear(f.items)
	f.items, f.bytes, f.unsent = f.items[:0], 0, false
	if len(s.free) < 64 {
		s.free = append(s.free, f)
	}
	return throttle, refresh, err
}
