package pipeline

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/state"
)

// leaderless has the cluster say of one topic that no leader can tell its offsets, until heal is called. Topics that are asked about
// in the same request begin at 0 and end where ends says.
func leaderless(c *kfake.Cluster, topic string, ends map[string]int64) (heal func()) {
	var healed atomic.Bool
	c.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.ListOffsetsRequest)
		if healed.Load() || !slices.ContainsFunc(req.Topics, func(t kmsg.ListOffsetsRequestTopic) bool { return t.Topic == topic }) {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewListOffsetsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewListOffsetsResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.Offset = p.Partition, -1, 0
				switch {
				case p.Timestamp == -1 && t.Topic != topic:
					rp.Offset = ends[t.Topic]
				case t.Topic == topic:
					rp.Offset, rp.ErrorCode = -1, kerr.OffsetNotAvailable.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return func() { healed.Store(true) }
}

// begin runs a pipeline beside the test; end stops it and gives Run's error.
func (p *twins) begin(cfg Config) (pl *Pipeline, end func() error) {
	p.Helper()
	pl = p.pipeline(cfg, Options{})
	ctx, cancel := context.WithCancel(p.Context())
	ran := make(chan error, 1)
	go func() { ran <- pl.Run(ctx) }()
	ended := false
	end = func() error {
		p.Helper()
		if ended {
			return nil
		}
		ended = true
		pl.Stop()
		defer pl.Close()
		defer cancel()
		select {
		case err := <-ran:
			return err
		case <-time.After(20 * time.Second):
			cancel()
			<-ran
			p.Error("20 s after Stop the pipeline still ran")
			return nil
		}
	}
	p.Cleanup(func() { end() })
	return pl, end
}

// until polls for at most 20 s.
func (p *twins) until(what string, done func() bool) {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.Fatalf("after 20 s still waiting until %s", what)
		}
	}
}

// end is where a topic's only partition ends, -1 where there is none.
func (p *twins) end(c *kfake.Cluster, topic string) int64 {
	p.Helper()
	ends, err := kadm.NewClient(p.client(c)).ListEndOffsets(p.Context(), topic)
	if o, ok := ends.Lookup(topic, 0); err == nil && ok && o.Err == nil {
		return o.Offset
	}
	return -1
}

// A first round that one partition keeps open must not have the link refuse, at its next start, what it copied itself.
func TestRestartWhileAPartitionNeverAnswered(t *testing.T) {
	p := newTwins(t, kfake.NumBrokers(1))
	p.topic(p.east, "down", 1)
	p.topic(p.east, "up", 1)
	p.write(p.east, "up", 1, 0, 100)
	heal := leaderless(p.east, "down", nil)
	cfg := p.config(DefaultLink("east", "west"))
	_, end := p.begin(cfg)
	p.until("the topic that answers is copied", func() bool { return p.end(p.west, "east.up") == 100 })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	heal()
	p.write(p.east, "up", 1, 100, 100)
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	p.same("up", "east.up")
	p.same("down", "east.down")
}

// A topic that is born while the first round is still open is copied from its first record, not from its latest.
func TestTopicBornWhileAPartitionNeverAnswered(t *testing.T) {
	p := newTwins(t, kfake.NumBrokers(1))
	p.topic(p.east, "down", 1)
	p.topic(p.east, "old", 1)
	p.write(p.east, "old", 1, 0, 10)
	leaderless(p.east, "down", map[string]int64{"old": 10, "new": 50})
	link := DefaultLink("east", "west")
	link.Start, link.Refresh = Start{Kind: StartLatest}, RefreshFloor
	pl, end := p.begin(p.config(link))
	p.until("the link has looked at the topics", func() bool { return pl.Snapshot().Links[0].Phase == "running" && p.end(p.west, "east.old") >= 0 })
	p.topic(p.east, "new", 1)
	p.write(p.east, "new", 1, 0, 50)
	p.until("the new topic is copied", func() bool { return p.end(p.west, "east.new") == 50 })
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// A stop does not wait for a cluster that does not answer.
func TestStopWhileNothingAnswers(t *testing.T) {
	silent := make(chan struct{}, 100)
	hang := func(ctx context.Context, _, _ string) (net.Conn, error) {
		silent <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p := newTwins(t)
	p.topic(p.east, "orders", 1)
	p.write(p.east, "orders", 1, 0, 10)
	quick := func(t *testing.T, end func() error) {
		t.Helper()
		began := time.Now()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("the stop took %v", took)
		}
	}
	t.Run("to connect", func(t *testing.T) {
		cfg := p.config(DefaultLink("east", "west"))
		east := cfg.Clusters["east"]
		east.Dial = hang
		cfg.Clusters["east"] = east
		_, end := p.begin(cfg)
		<-silent
		quick(t, end)
	})
	t.Run("to list topics", func(t *testing.T) {
		link := DefaultLink("east", "west")
		link.Refresh = RefreshFloor
		_, end := p.begin(p.config(link))
		p.until("the topic is copied", func() bool { return p.end(p.west, "east.orders") == 10 })
		asked := make(chan struct{}, 1)
		p.east.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
			p.east.KeepControl()
			select {
			case asked <- struct{}{}:
			default:
			}
			return nil, nil, true // no answer, ever
		})
		<-asked
		quick(t, end)
	})
}

// What the lanes did last, just before a stop, is stored as a clean end also while a write of positions is under way.
func TestStopStoresACleanEnd(t *testing.T) {
	p := newTwins(t, kfake.NumBrokers(1))
	p.topic(p.east, "orders", 1)
	p.write(p.east, "orders", 1, 0, 10)
	cfg := p.config(DefaultLink("east", "west"))
	pl, end := p.begin(cfg)
	p.until("the topic is copied", func() bool { return p.end(p.west, "east.orders") == 10 })
	writing := make(chan struct{}, 1)
	p.west.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		p.west.KeepControl()
		if isCopy(p.west, kreq.(*kmsg.ProduceRequest)) {
			return nil, nil, false
		}
		select {
		case writing <- struct{}{}:
		default:
		}
		p.west.SleepControl(func() { time.Sleep(time.Second) })
		return nil, nil, false
	})
	p.write(p.east, "orders", 1, 10, 10)
	<-writing
	p.write(p.east, "orders", 1, 20, 10)
	p.until("all is acknowledged", func() bool { return pl.Snapshot().Links[0].Records == 30 })
	if err := end(); err != nil {
		t.Fatal(err)
	}
	west := pl.clusters["west"]
	store, err := state.Open(t.Context(), state.Options{NewClient: west.NewClient, Alias: "east", ClusterID: "east", ReadOnly: true, Log: pl.log})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for key, cp := range store.Checkpoints() {
		if !cp.Clean || cp.SrcNext != 30 {
			t.Errorf("%v: stored at %d, clean %v", key, cp.SrcNext, cp.Clean)
		}
	}
}

// A job that could not store where it stands has not ended well: its next run would copy again.
func TestJobThatCannotStore(t *testing.T) {
	p := newTwins(t, kfake.NumBrokers(1))
	p.topic(p.east, "orders", 1)
	p.write(p.east, "orders", 1, 0, 10)
	pl := p.pipeline(p.config(DefaultLink("east", "west")), Options{UntilCaughtUp: true, Grace: time.Second})
	defer pl.Close()
	begun := func() bool { // the link's record is stored: what is written from here on are positions
		l := pl.links[0]
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.store == nil {
			return false
		}
		_, ok := l.store.Link(l.cfg.Name)
		return ok
	}
	p.west.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		p.west.KeepControl()
		if isCopy(p.west, kreq.(*kmsg.ProduceRequest)) {
			p.west.SleepControl(func() {
				for p.Context().Err() == nil && !begun() {
					time.Sleep(time.Millisecond)
				}
			})
			return nil, nil, false
		}
		return nil, nil, begun() // positions are never answered any more
	})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	err := pl.Run(ctx)
	if err == nil || !strings.HasPrefix(err.Error(), "link east.west: all was copied, its positions were not stored: run it again: ") {
		t.Fatalf("the job ended with %v", err)
	}
}

// isCopy says whether a request writes the copy of orders, not state.
func isCopy(c *kfake.Cluster, req *kmsg.ProduceRequest) bool {
	return slices.ContainsFunc(req.Topics, func(t kmsg.ProduceRequestTopic) bool {
		return t.Topic == "east.orders" || t.TopicID != [16]byte{} && c.TopicIDInfo(t.TopicID).Topic == "east.orders"
	})
}

// Topics that a filter is widened onto begin where the link is told to start; what was born since is copied whole.
func TestWidenedFilter(t *testing.T) {
	p := newTwins(t)
	for _, topic := range []string{"orders", "payments"} {
		p.topic(p.east, topic, 2)
		p.write(p.east, topic, 2, 0, 100)
	}
	link := DefaultLink("east", "west")
	link.Topics.Include = []string{"orders.*"}
	if err := p.run(p.config(link), Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	p.topic(p.east, "orders-new", 2)
	p.write(p.east, "orders-new", 2, 0, 50)
	link.Topics.Include, link.Start = []string{"orders.*", "payments"}, Start{Kind: StartLatest}
	if err := p.run(p.config(link), Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	p.same("orders", "east.orders")
	p.same("orders-new", "east.orders-new")
	if got := p.read(p.west, "east.payments"); len(got) != 0 {
		t.Fatalf("payments begins at its end, and %d partitions were copied", len(got))
	}
	p.write(p.east, "payments", 2, 100, 40)
	if err := p.run(p.config(link), Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	if got := p.read(p.west, "east.payments"); len(got[0])+len(got[1]) != 40 || got[0][0] != "k100=v100" {
		t.Fatalf("payments has %d and %d records after its start, want 20 each", len(got[0]), len(got[1]))
	}
}

// Two links that would copy a topic to the same place double it: the later one leaves it alone and says so.
func TestTwoLinksOneCopy(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 3)
	p.write(p.east, "orders", 3, 0, 300)
	again := DefaultLink("east", "west")
	again.Name = "again"
	again.Topics.Include = []string{"ord.*"}
	err := p.run(p.config(DefaultLink("east", "west"), again), Options{UntilCaughtUp: true})
	var stuck *Stuck
	if !errors.As(err, &stuck) || len(stuck.Lanes) != 1 || !strings.Contains(stuck.Lanes[0], "link east.west copies it to east.orders on west too") {
		t.Fatalf("the job ended with %v", err)
	}
	p.same("orders", "east.orders")
}
