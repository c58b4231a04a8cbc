package sink

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
	"kferry/pipeline/lane"
)

// Entries arrive in the order of their sends at any depth, and each is acked with its place in the log.
func TestOrderByDepth(t *testing.T) {
	for _, depth := range []int{1, 5, 20, 100} {
		t.Run(fmt.Sprintf("depth=%d", depth), func(t *testing.T) {
			opts := options()
			opts.RequestBytes, opts.LingerGap = 2<<10, time.Millisecond
			r := start(t, opts)
			var wg sync.WaitGroup
			var sent [][]*lane.Entry
			var done []*answers
			for p := range int32(6) {
				a := newAnswers()
				all := entries(t, int64(500+p), 200, 300)
				s := r.open(t, "orders", p, a.to)
				wg.Go(func() {
					for sent := 0; sent < len(all); {
						n := min(len(all)-sent, 1+sent%depth)
						s.Send(all[sent : sent+n])
						sent += n
						if sent >= depth {
							a.wait(t, sent-depth+1)
						}
					}
					a.wait(t, len(all))
				})
				sent, done = append(sent, all), append(done, a)
			}
			wg.Wait()
			for p := range int32(6) {
				all := sent[p]
				got := done[p].wait(t, len(all))
				check(t, got, all, lane.Acked)
				next := int64(0)
				for i, c := range got {
					if c.Base != next {
						t.Fatalf("entry %d of partition %d has base offset %d, want %d", i, p, c.Base, next)
					}
					next += int64(all[i].Batch.Count())
				}
				log := r.stored(t, "orders", p)
				if len(log) != len(all) {
					t.Fatalf("partition %d holds %d batches, want %d", p, len(log), len(all))
				}
				for i, b := range log {
					if !bytes.Equal(b.Payload(), all[i].Batch.Payload()) || b.Verify() != nil {
						t.Fatalf("batch %d of partition %d is not what was sent", i, p)
					}
				}
			}
		})
	}
}

// Answers are matched by partition. One that was left out is in doubt, one that nobody asked for is nothing.
func TestAnswersOutOfOrder(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts)
	var calls atomic.Int32
	r.produced(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		n := 0
		for _, topic := range req.Topics {
			n += len(topic.Partitions)
		}
		if n < 8 {
			return ok(req) // the one that holds the line open
		}
		calls.Add(1)
		resp := ok(req)
		ps := resp.Topics[0].Partitions
		for i := range ps {
			ps[i].BaseOffset = int64(ps[i].Partition) * 10
		}
		slices.Reverse(ps)
		ps[0].Partition = 4711                                                   // was 7
		ps[3].ErrorCode, ps[3].ErrorMessage = kerr.InvalidRecord.Code, new("no") // 4
		ps = append(ps, ps[6], ps[6])                                            // 1, three times
		ps[len(ps)-1].ErrorCode = 1
		resp.Topics[0].Partitions = ps
		other := kmsg.NewProduceResponseTopic()
		other.Topic, other.TopicID, other.Partitions = "nobody's", [16]byte{9}, ps[:2]
		resp.Topics = append([]kmsg.ProduceResponseTopic{other}, resp.Topics...)
		return resp
	})
	// While the line is held the entries gather, and go in one request.
	hold := newAnswers()
	s := r.open(t, "orders", 0, hold.to)
	first := entries(t, 1, 1, 10)
	s.Send(first)
	check(t, hold.wait(t, 1), first, lane.Acked)
	r.sink.mu.Lock()
	x := r.sink.senders[0][0]
	r.sink.mu.Unlock()
	var all []*answers
	var es [][]*lane.Entry
	for p := range int32(8) {
		a := newAnswers()
		all = append(all, a)
		es = append(es, entries(t, int64(p), 1, 20))
		st := r.open(t, "orders", p, a.to).(*stream)
		x.mu.Lock() // as Send does, but for all of them at once
		defer st.Close()
		st.queue = append(st.queue, es[p]...)
		x.readyBytes += es[p][0].Size()
		st.queued = true
		x.ready = append(x.ready, st)
		x.mu.Unlock()
	}
	x.signal()
	for p, a := range all {
		got := a.wait(t, 1)
		want := lane.Completion{Entry: es[p][0], Outcome: lane.Acked, Base: int64(p) * 10}
		switch p {
		case 4:
			want = lane.Completion{Entry: es[p][0], Outcome: lane.Failed, Code: kerr.InvalidRecord.Code}
			if got[0].Message != "no" {
				t.Errorf("the broker's words: %q", got[0].Message)
			}
			got[0].Message = ""
		case 7:
			want = lane.Completion{Entry: es[p][0], Outcome: lane.Lost}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("partition %d: %+v, want %+v", p, got, want)
		}
	}
	if calls.Load() != 1 {
		t.Errorf("%d requests, want 1", calls.Load())
	}
}

// What fails ends the stream: what waits behind it comes back, but not before what was written has its answer.
func TestFailureComesInOrder(t *testing.T) {
	opts := options()
	opts.Conns, opts.MaxRequests = 1, 3
	r := start(t, opts)
	r.produced(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		resp := ok(req)
		resp.Topics[0].Partitions[0].ErrorCode = kerr.NotLeaderForPartition.Code
		return resp
	})
	a := newAnswers()
	all := entries(t, 1, 20, 100)
	s := r.open(t, "orders", 0, a.to)
	r.proxy.Answers.Stall()
	s.Send(all[:10])
	// A dial was needed: three requests are written once the proxy answers its handshake.
	r.proxy.Answers.Resume()
	a.wait(t, 10)
	s.Send(all[10:]) // dead already
	got := a.wait(t, 20)
	check(t, got, all)
	unsent := false
	for i, c := range got {
		switch {
		case c.Outcome == lane.Unsent:
			unsent = true
		case c.Outcome != lane.Failed || c.Code != kerr.NotLeaderForPartition.Code || unsent:
			t.Fatalf("completion %d: outcome %d, code %d", i, c.Outcome, c.Code)
		}
	}
	if got[0].Outcome != lane.Failed || got[19].Outcome != lane.Unsent {
		t.Fatalf("the first has outcome %d, the last %d", got[0].Outcome, got[19].Outcome)
	}
}

// flying opens a stream whose connection is up, then holds back the answers and sends all: as many as may are under way.
func flying(t *testing.T, r *rig, all []*lane.Entry, requests int) (*answers, lane.Stream) {
	t.Helper()
	a := newAnswers()
	s := r.open(t, "orders", 0, a.to)
	s.Send(all[:1])
	check(t, a.wait(t, 1), all[:1], lane.Acked)
	r.proxy.Answers.Stall()
	s.Send(all[1:])
	size := all[1].Size()
	eventually(t, "requests under way", func() bool {
		n := r.sink.Stats()
		flying, queued := n.Flying, n.Queued
		return flying == requests*size && queued == (len(all)-1-requests)*size
	})
	return a, s
}

func outcomes(lost, unsent int) []lane.Outcome {
	return slices.Concat([]lane.Outcome{lane.Acked}, slices.Repeat([]lane.Outcome{lane.Lost}, lost), slices.Repeat([]lane.Outcome{lane.Unsent}, unsent))
}

// A cut connection leaves in doubt exactly what was written. The limit on requests holds.
func TestCut(t *testing.T) {
	for _, how := range []kafkatest.Cut{kafkatest.FIN, kafkatest.RST} {
		opts := options()
		opts.Conns, opts.MaxRequests = 1, 3
		r := start(t, opts)
		all := entries(t, 1, 11, 100)
		a, s := flying(t, r, all, 3)
		r.proxy.CutAll(how)
		check(t, a.wait(t, 11), all, outcomes(3, 7)...)
		late := entries(t, 1, 2, 100)
		s.Send(late)
		check(t, a.wait(t, 13)[11:], late, lane.Unsent)

		// A new stream goes over a new connection.
		r.proxy.Resume()
		b := newAnswers()
		again := entries(t, 2, 1, 100)
		r.open(t, "orders", 1, b.to).Send(again)
		check(t, b.wait(t, 1), again, lane.Acked)
	}
}

// A lane that gives its stream up hears of what was written first.
func TestCloseWaitsForAnswers(t *testing.T) {
	opts := options()
	opts.Conns, opts.MaxRequests = 1, 3
	r := start(t, opts)
	all := entries(t, 1, 11, 100)
	a, s := flying(t, r, all, 3)
	s.Close()
	s.Close()
	if queued := r.sink.Stats().Queued; queued != 0 {
		t.Fatalf("%d bytes are still to be sent", queued)
	}
	if got := a.wait(t, 1); len(got) != 1 {
		t.Fatalf("%d completions before the answers", len(got))
	}
	r.proxy.Answers.Resume()
	want := outcomes(0, 7)
	want = slices.Concat(slices.Repeat([]lane.Outcome{lane.Acked}, 4), want[1:])
	check(t, a.wait(t, 11), all, want...)
}

// When Run ends everything has been answered, and nothing new is taken.
func TestRunEndAnswersEverything(t *testing.T) {
	opts := options()
	opts.Conns, opts.MaxRequests = 1, 3
	r := start(t, opts)
	all := entries(t, 1, 11, 100)
	a, s := flying(t, r, all, 3)
	r.stop()
	a.mu.Lock()
	got := a.got
	a.mu.Unlock()
	check(t, got, all, outcomes(3, 7)...)
	s.Send(all[:1])
	check(t, a.wait(t, 12)[11:], all[:1], lane.Unsent)
	if _, err := r.sink.Partition("orders", 0).Open(a.to); err == nil {
		t.Error("a stream was opened")
	}
	ctx := within(t)
	if _, err := r.sink.Partition("orders", 0).Look(ctx, batch.Identity{ProducerID: 1}, lane.Position{}, false); err == nil || ctx.Err() != nil {
		t.Errorf("a look-up says %v", err)
	}
}

// A broker that takes requests and never answers is given up at the deadline.
func TestBlackhole(t *testing.T) {
	opts := options()
	opts.Conns, opts.MaxRequests, opts.AckTimeout = 1, 3, 200*time.Millisecond
	r := start(t, opts)
	all := entries(t, 1, 11, 100)
	a, _ := flying(t, r, all, 3)
	begin := time.Now()
	check(t, a.wait(t, 11), all, outcomes(3, 7)...)
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}

// Bytes under way stay within the budget, whatever the sizes.
func TestBudget(t *testing.T) {
	opts := options()
	opts.Conns, opts.RequestBytes, opts.BudgetBytes = 1, 10_000, 8000
	r := start(t, opts)
	all := entries(t, 1, 40, 939) // 1000 bytes each
	a, _ := flying(t, r, all, 8)  // one by one, four with a write
	r.proxy.Answers.Resume()
	check(t, a.wait(t, 40), all, lane.Acked)
}

// Requests that leave together hold each one batch of a partition, no more in all than a full request, and no more than may be
// under way. Little is left to wait for company.
func TestTogether(t *testing.T) {
	const size = 1000
	for _, c := range []struct {
		what       string
		queues     []int // batches of each partition
		most, full int   // requests under way; bytes of a full one
		want       []int // batches of each request
	}{
		{"few partitions with much", []int{9, 9}, 256, 6 * size, []int{2, 2, 2}},
		{"the last one takes what there is room for", []int{9, 9}, 256, 7 * size, []int{2, 2, 2, 1}},
		{"one partition", []int{9}, 256, 3 * size, []int{1, 1, 1}},
		{"many partitions fill one", []int{1, 1, 1, 1, 1, 1}, 256, 4 * size, []int{4}},
		{"little goes alone", []int{2, 2}, 256, 5 * size, []int{2}},
		{"requests under way", []int{9, 9}, 2, 6 * size, []int{2, 2}},
		{"a batch larger than a request", []int{2}, 256, size / 2, []int{1}},
		{"nothing", nil, 256, size, nil},
	} {
		opts := options()
		opts.RequestBytes, opts.BudgetBytes, opts.MaxRequests = c.full, 4*c.full, c.most
		s := newSender(&Sink{opts: opts, log: slog.New(slog.DiscardHandler)}, 1)
		for i, n := range c.queues {
			st := &stream{sender: s, partition: int32(i), slot: new(slot)}
			st.Send(entries(t, 1, n, size-61))
		}
		var got []int
		for _, f := range s.takeTogetherLocked(nil) {
			seen := map[int32]bool{}
			for _, it := range f.items {
				if seen[it.stream.partition] {
					t.Errorf("%s: partition %d twice in a request", c.what, it.stream.partition)
				}
				seen[it.stream.partition] = true
			}
			got = append(got, len(f.items))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: requests of %d batches, want %d", c.what, got, c.want)
		}
	}
}

// Two lanes that write to one partition never share a request: a broker would keep only one of the two batches.
func TestTwoStreamsOnePartition(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts)
	var requests atomic.Int32
	r.produced(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		requests.Add(1)
		seen := map[string]bool{}
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				key := fmt.Sprint(topic.Topic, topic.TopicID, p.Partition)
				if seen[key] {
					t.Errorf("%s stands twice in a request", key)
				}
				seen[key] = true
			}
		}
		return nil
	})
	a, b := newAnswers(), newAnswers()
	ones, twos := entries(t, 1, 100, 50), entries(t, 2, 100, 50)
	s1, s2 := r.open(t, "orders", 0, a.to), r.open(t, "orders", 0, b.to)
	for i := range 100 {
		if i > 0 {
			a.wait(t, 1) // KAFKA-15591: the first of a log has to be the first of its producer
		}
		s1.Send(ones[i : i+1])
		s2.Send(twos[i : i+1])
	}
	check(t, a.wait(t, 100), ones, lane.Acked)
	check(t, b.wait(t, 100), twos, lane.Acked)
	if n := len(r.stored(t, "orders", 0)); n != 200 {
		t.Errorf("%d batches in the log, want 200", n)
	}
}

// While answers are missing, less than a full request keeps its distance; what makes a full one goes at once, together.
func TestLingerGap(t *testing.T) {
	opts := options()
	opts.Conns, opts.LingerGap, opts.RequestBytes = 1, time.Hour, 4000
	r := start(t, opts)
	a, b := newAnswers(), newAnswers()
	all := entries(t, 1, 12, 939)
	s, other := r.open(t, "orders", 0, a.to), r.open(t, "orders", 1, b.to)
	s.Send(all[:1])
	check(t, a.wait(t, 1), all[:1], lane.Acked)
	r.proxy.Answers.Stall()
	s.Send(all[1:2])
	eventually(t, "the second request", func() bool { return r.sink.Stats().Flying == 1000 })
	s.Send(all[2:4])
	n := r.sink.Stats()
	if f, q := n.Flying, n.Queued; f != 1000 || q != 2000 {
		t.Fatalf("%d bytes under way, %d queued", f, q)
	}
	more := entries(t, 2, 2, 939)
	other.Send(more) // now there is enough for a full request
	eventually(t, "two requests", func() bool { n := r.sink.Stats(); return n.Flying == 5000 && n.Queued == 0 })
	r.proxy.Answers.Resume()
	check(t, a.wait(t, 4), all[:4], lane.Acked)
	check(t, b.wait(t, 2), more, lane.Acked)
}

// A quota's silence is kept.
func TestThrottle(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts)
	times := make(chan time.Time, 10)
	r.produced(func(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
		times <- time.Now()
		resp := ok(req)
		resp.ThrottleMillis = 300
		return resp
	})
	a := newAnswers()
	all := entries(t, 1, 2, 10)
	s := r.open(t, "orders", 0, a.to)
	s.Send(all[:1])
	a.wait(t, 1)
	s.Send(all[1:])
	check(t, a.wait(t, 2), all, lane.Acked)
	if first, second := <-times, <-times; second.Sub(first) < 300*time.Millisecond {
		t.Errorf("the second request came %v after the first", second.Sub(first))
	}
	if n := r.sink.ThrottleMillis(); n < 300 {
		t.Errorf("%d ms of silence are counted", n)
	}
}

// An idle connection is replaced; the streams do not notice.
func TestIdleConnectionIsReplaced(t *testing.T) {
	opts := options()
	opts.Conns, opts.IdleTimeout = 1, 30*time.Millisecond
	r := start(t, opts)
	a := newAnswers()
	all := entries(t, 1, 5, 10)
	s := r.open(t, "orders", 0, a.to)
	for i := range all {
		s.Send(all[i : i+1])
		a.wait(t, i+1)
		eventually(t, "the end of the idle connection", func() bool { return r.proxy.Open() == 0 })
	}
	check(t, a.wait(t, 5), all, lane.Acked)
	if n := r.proxy.Accepted(); n != 5 {
		t.Errorf("%d connections, want 5", n)
	}
}

// A connection whose SASL session is about to expire is replaced, busy or not; the streams do not notice.
func TestSessionExpires(t *testing.T) {
	opts := options()
	opts.Conns = 1
	sasl := &cluster.SASL{Mechanism: "PLAIN", Username: "kferry", Password: cluster.NewSecret("sesame")}
	r := startAs(t, sasl, opts, kfake.EnableSASL(), kfake.Superuser("PLAIN", "kferry", "sesame"),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "200"}))
	a := newAnswers()
	all := entries(t, 1, 300, 10)
	s := r.open(t, "orders", 0, a.to)
	begin := time.Now()
	n := 0
	for ; n < len(all)-1 && time.Since(begin) < time.Second; n++ {
		s.Send(all[n : n+1])
		a.wait(t, n+1)
		eventually(t, "the next of 200 steps a second", func() bool { return time.Since(begin) > time.Duration(n)*5*time.Millisecond })
	}
	eventually(t, "the end of the idle connection", func() bool { return r.proxy.Open() == 0 })
	s.Send(all[n : n+1])
	a.wait(t, n+1)
	check(t, a.wait(t, n+1), all[:n+1], lane.Acked)
	if c := r.proxy.Accepted(); c < 4 {
		t.Errorf("%d connections in %v", c, time.Since(begin))
	}
}
