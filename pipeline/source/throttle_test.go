package source

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quota answers as Kafka does above a quota: at once and without records. What the request changed in the session stays changed.
type quota struct {
	mu       sync.Mutex
	left     int // answers to withhold
	withheld int32
	topics   []kmsg.FetchRequestTopic // that withheld requests named
	asked    []time.Time
	waits    []int32 // MaxWaitMillis of all requests
}

func (q *quota) of(throttle time.Duration, full bool) func(*kmsg.FetchRequest) *kmsg.FetchResponse {
	return func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.asked, q.waits = append(q.asked, time.Now()), append(q.waits, req.MaxWaitMillis)
		if inSession := req.SessionEpoch > 0; inSession != full && q.left > 0 {
			q.left--
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			resp.ThrottleMillis = int32(throttle.Milliseconds())
			if inSession { // else getThrottledResponse gives no session
				resp.SessionID = req.SessionID
				q.withheld++
				q.topics = append(q.topics, req.Topics...)
			}
			return resp
		}
		if req.SessionEpoch > 0 { // the fake has not seen those
			req.SessionEpoch -= q.withheld
			req.Topics, q.topics = slices.Concat(q.topics, req.Topics), nil
		}
		return nil
	}
}

// A partition that a quota holds back is not quiet, and nothing is asked for in the meantime.
func TestThrottledIsNotQuiet(t *testing.T) {
	const throttle = 60 * time.Millisecond
	opts := options()
	opts.Conns, opts.QuietAfter, opts.PartitionBytes = 1, throttle/2, 2000
	r := start(t, opts, kfake.NumBrokers(1))
	var end int64
	for range 4 {
		end = r.write(t, "orders", 0, 1, 1500)
	}
	q := &quota{left: 3}
	r.fetched(q.of(throttle, false))
	x := r.open(t, "orders", 0)
	x.cursor.Ask()
	x.reach(t, end)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left != 0 {
		t.Fatalf("%d answers were not withheld", q.left)
	}
	for i := range 3 {
		if d := q.asked[i+2].Sub(q.asked[i+1]); d < throttle {
			t.Errorf("asked %v after an answer that said %v", d, throttle)
		}
	}
	// The answer that brings the rest comes to the fifth request.
	for i, wait := range q.waits[:5] {
		if wait != int32(opts.BacklogWait.Milliseconds()) {
			t.Errorf("request %d waits %d ms: it is on the quiet connection", i, wait)
		}
	}
	if n := r.source.Stats().ThrottleMillis; n != 3*throttle.Milliseconds() {
		t.Errorf("%d ms of silence are counted", n)
	}
}

// A first fetch that meets a quota gets no session; that is no word about room for one.
func TestThrottledFirstFetch(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts, kfake.NumBrokers(1))
	s := r.spy() // sees what comes first
	r.fetched((&quota{left: 2}).of(time.Millisecond, true))
	x := r.open(t, "orders", 0)
	x.cursor.Ask()
	for range 3 {
		s.await(t, "epoch 0: +0@0")
	}
	end := r.write(t, "orders", 0, 3, 100)
	x.reach(t, end)
	s.await(t, "epoch n: +0@3")
}

// Nothing is waited for longer than any quota's window, and Close does not wait for a mute.
func TestThrottledForDays(t *testing.T) {
	b := newBench(t)
	b.at(b.one)
	b.one.mute(24 * 24 * time.Hour)
	if left := time.Until(b.one.muted); left > mostThrottle {
		t.Errorf("mute for %v", left)
	}
	b.one.mute(-time.Second)
	if left := time.Until(b.one.muted); left < mostThrottle/2 {
		t.Errorf("a throttle below zero leaves %v", left)
	}

	r := start(t, options(), kfake.NumBrokers(1))
	r.fetched((&quota{left: 1}).of(24*time.Hour, true))
	x := r.open(t, "orders", 0)
	x.cursor.Ask()
	eventually(t, "a mute", func() bool { return r.source.Stats().ThrottleMillis > 0 })
	_ = r.stop() // within the test's patience
}
