package source

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// spy keeps what was asked for, as text: session epoch, +partition@offset for what is asked, -partition for what is forgotten.
type spy struct {
	mu  sync.Mutex
	all []string
}

func (r *rig) spy() *spy {
	s := &spy{}
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		text := fmt.Sprintf("epoch %d:", req.SessionEpoch)
		if req.SessionEpoch > 0 {
			text = "epoch n:"
		}
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				text += fmt.Sprintf(" +%d@%d", p.Partition, p.FetchOffset)
			}
		}
		for _, topic := range req.ForgottenTopics {
			for _, p := range topic.Partitions {
				text += fmt.Sprintf(" -%d", p)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, text)
		return nil
	})
	return s
}

// await waits for a request that says text, and drops all up to it. Nothing but silence may come before it.
func (s *spy) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, "the request "+text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.all) > 0 {
			head := s.all[0]
			s.all = s.all[1:]
			if head == text {
				return true
			}
			if head != "epoch n:" {
				t.Fatalf("the request says %q, want %q", head, text)
			}
		}
		return false
	})
}

// In a session only changes are told.
func TestSession(t *testing.T) {
	for _, opt := range versionsOf(11, 12, 18) {
		opts := options()
		opts.Conns = 1
		r := start(t, opts, kfake.NumBrokers(1), opt)
		s := r.spy()
		zero, one := r.open(t, "orders", 0), r.open(t, "orders", 1)
		zero.cursor.Ask()
		s.await(t, "epoch 0: +0@0")
		one.cursor.Ask()
		s.await(t, "epoch n: +1@0")
		end := r.write(t, "orders", 1, 3, 100)
		s.await(t, "epoch n: +1@3")
		one.reach(t, end)
		one.cursor.Hold()
		s.await(t, "epoch n: -1")
		r.write(t, "orders", 1, 2, 100)
		r.write(t, "orders", 0, 1, 100)
		s.await(t, "epoch n: +0@1")
		one.cursor.Ask()
		s.await(t, "epoch n: +1@3")
		s.await(t, "epoch n: +1@5")
		one.moveTo(3)
		s.await(t, "epoch n: +1@3")
		s.await(t, "epoch n: +1@5")
		one.cursor.Hold()
		s.await(t, "epoch n: -1")
		one.cursor.Close()
		zero.cursor.Close()
		two := r.open(t, "orders", 2)
		two.cursor.Ask()
		s.await(t, "epoch n: +2@0 -0")
	}
}

// A session that the broker has lost is begun anew, with all that is asked for.
func TestSessionLost(t *testing.T) {
	for _, code := range []int16{kerr.FetchSessionIDNotFound.Code, kerr.InvalidFetchSessionEpoch.Code, kerr.FetchSessionTopicIDError.Code} {
		opts := options()
		opts.Conns = 1
		r := start(t, opts, kfake.NumBrokers(1))
		var lose atomic.Bool
		r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			if req.SessionEpoch <= 0 || !lose.CompareAndSwap(true, false) {
				return nil
			}
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = code
			return resp
		})
		s := r.spy()
		x := r.open(t, "orders", 0)
		x.cursor.Ask()
		s.await(t, "epoch 0: +0@0")
		for i := range 5 {
			end := r.write(t, "orders", 0, 3, 100)
			x.reach(t, end)
			s.await(t, fmt.Sprintf("epoch n: +0@%d", end))
			lose.Store(true)
			s.await(t, fmt.Sprintf("epoch 0: +0@%d", end))
			r.write(t, "orders", 0, 2, 100)
			x.reach(t, int64(5*i+5))
			s.await(t, fmt.Sprintf("epoch n: +0@%d", 5*i+5))
		}
		if n := r.proxy.Accepted(); n != 1 {
			t.Errorf("%d connections for a lost session", n)
		}
	}
}

// A broker without room for a session is read without one; one that refuses even to begin a session is left alone for a while.
func TestNoSession(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts, kfake.NumBrokers(1))
	var refuse atomic.Bool
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if refuse.Load() {
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
			return resp
		}
		req.SessionEpoch = -1 // so the fake makes none
		return nil
	})
	x, y := r.open(t, "orders", 0), r.open(t, "orders", 1)
	x.cursor.Ask()
	y.cursor.Ask()
	for i := range 4 {
		r.write(t, "orders", 0, 3, 100)
		r.write(t, "orders", 1, 3, 100)
		x.reach(t, int64(3*i+3))
		y.reach(t, int64(3*i+3))
	}
	refuse.Store(true)
	eventually(t, "other connections", func() bool { return r.proxy.Accepted() >= 4 })
	refuse.Store(false)
	end := r.write(t, "orders", 0, 3, 100)
	x.reach(t, end)
}

// Partitions without records wait on the quiet connection, and leave it when there is something to read or to be quick about.
func TestQuiet(t *testing.T) {
	opts := options()
	opts.Conns, opts.QuietAfter, opts.QuietWait = 1, 40*time.Millisecond, 10*time.Second
	r := start(t, opts, kfake.NumBrokers(1))
	quiet := func(x *tap) bool {
		r.source.mu.Lock()
		defer r.source.mu.Unlock()
		return x.cursor.feed.fetcher != nil && x.cursor.feed.fetcher.quiet
	}
	soon := func(what string, begin time.Time) {
		t.Helper()
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("%s took %v", what, d)
		}
	}
	x, y := r.open(t, "orders", 0), r.open(t, "orders", 1)
	x.cursor.Ask()
	y.cursor.Ask()
	eventually(t, "quiet partitions", func() bool { return quiet(x) && quiet(y) })
	begin := time.Now()
	x.reach(t, r.write(t, "orders", 0, 1, 100)) // the poll that waits for both ends with the first record
	soon("a record on a quiet connection", begin)

	// A poll is under way for 10 s. Whoever seeks, or asks again, does not wait for it.
	eventually(t, "quiet partitions", func() bool { return quiet(x) && quiet(y) })
	begin = time.Now()
	x.moveTo(0)
	x.reach(t, 1)
	soon("a seek", begin)
	eventually(t, "quiet partitions", func() bool { return quiet(x) && quiet(y) })
	y.cursor.Hold()
	r.write(t, "orders", 1, 1, 100) // may end the poll
	begin = time.Now()
	y.cursor.Ask()
	y.reach(t, 1)
	soon("asking again", begin)

	// A backlog moves to a connection that does not wait.
	eventually(t, "quiet partitions", func() bool { return quiet(x) && quiet(y) })
	var end int64
	for range 50 {
		end = r.write(t, "orders", 0, 1, 4000)
	}
	x.reach(t, end)
	soon("a backlog", begin)
	if x.codes != nil || y.codes != nil {
		t.Errorf("codes %v %v", x.codes, y.codes)
	}
}

// Order holds while partitions go to and fro between quiet connections and the others.
func TestQuietToAndFro(t *testing.T) {
	opts := options()
	opts.Conns, opts.QuietAfter, opts.QuietWait, opts.PartitionBytes = 2, time.Millisecond, 5*time.Millisecond, 2000
	r := start(t, opts)
	var taps []*tap
	for p := range int32(4) {
		x := r.open(t, "orders", p)
		x.cursor.Ask()
		taps = append(taps, x)
	}
	ends := make([]int64, 4)
	for i := range 600 {
		ends[i%4] = r.write(t, "orders", int32(i%4), i%3+1, 500)
		if i%40 == 0 {
			taps[i/40%4].reach(t, ends[i/40%4]-3)
		}
	}
	for p, x := range taps {
		x.reach(t, ends[p])
	}
	if !slices.Equal(ends, []int64{taps[0].next, taps[1].next, taps[2].next, taps[3].next}) {
		t.Errorf("ends %v", ends)
	}
}
