package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadata is an answer with one topic, whose partitions have these leaders and epochs.
func metadata(topic string, id byte, partitions ...Partition) *kmsg.MetadataResponse {
	m := kmsg.NewPtrMetadataResponse()
	m.ClusterID = kmsg.StringPtr("c1")
	m.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "kafka-1", Port: 9092, Rack: kmsg.StringPtr("a")}, {NodeID: 2, Host: "::1", Port: 9093}}
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID = &topic, [16]byte{id}
	for i, p := range partitions {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Leader, mp.LeaderEpoch = int32(i), p.Leader, p.LeaderEpoch
		mt.Partitions = append(mt.Partitions, mp)
	}
	m.Topics = append(m.Topics, mt)
	return m
}

func after(t *testing.T, old *Topology, m *kmsg.MetadataResponse) *Topology {
	t.Helper()
	next, err := old.next(m)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestTopology(t *testing.T) {
	one := after(t, newTopology(), metadata("orders", 7, Partition{1, 5}, Partition{2, 0}, Partition{-1, 3}))
	if one.Version != 1 || one.ClusterID != "c1" || one.Topic([16]byte{7}) != one.Topics["orders"] || one.Topic([16]byte{}) != nil {
		t.Fatalf("got %+v", one)
	}
	for broker, want := range map[int32]string{1: "kafka-1:9092", 2: "[::1]:9093", 3: ""} {
		if addr, ok := one.Addr(broker); addr != want || ok != (want != "") {
			t.Fatalf("broker %d at %q", broker, addr)
		}
	}
	lead := func(topo *Topology, topic string, partition int32, want Partition, known bool) {
		t.Helper()
		if p, ok := topo.Leader(topic, partition); p != want || ok != known {
			t.Fatalf("%s/%d: %+v, %v", topic, partition, p, ok)
		}
	}
	lead(one, "orders", 0, Partition{1, 5}, true)
	lead(one, "orders", 2, Partition{-1, 3}, false)
	lead(one, "orders", 3, Partition{-1, -1}, false)
	lead(one, "orders", -1, Partition{-1, -1}, false)
	lead(one, "payments", 0, Partition{-1, -1}, false)

	if same := after(t, one, metadata("orders", 7, Partition{1, 5}, Partition{2, 0}, Partition{-1, 3})); same != one {
		t.Fatal("an unchanged cluster is a change")
	}
	// A broker that lags behind: an older epoch for 0, a newer one for 1, one partition fewer.
	two := after(t, one, metadata("orders", 7, Partition{2, 4}, Partition{1, 1}))
	lead(two, "orders", 0, Partition{1, 5}, true)
	lead(two, "orders", 1, Partition{1, 1}, true)
	lead(two, "orders", 2, Partition{-1, 3}, false)
	if two.Version != 2 {
		t.Fatalf("version %d", two.Version)
	}
	// No leader for the moment: what was known stays.
	gone := metadata("orders", 7)
	gone.Topics[0].ErrorCode = kerr.LeaderNotAvailable.Code
	if after(t, two, gone) != two {
		t.Fatal("LEADER_NOT_AVAILABLE is a change")
	}
	// Made anew: another id, and epochs begin again.
	three := after(t, two, metadata("orders", 8, Partition{2, 0}))
	lead(three, "orders", 0, Partition{2, 0}, true)
	if n := len(three.Topics["orders"].Partitions); n != 1 || three.Topic([16]byte{7}) != nil {
		t.Fatalf("%d partitions", n)
	}
	// Deleted.
	four := after(t, three, metadata("payments", 9, Partition{1, 0}))
	if four.Topics["orders"] != nil || four.Topics["payments"] == nil {
		t.Fatalf("got %+v", four.Topics)
	}
	// Nonsense is an error.
	for _, number := range []int32{-1, 1, 1<<31 - 1} {
		bad := metadata("orders", 7, Partition{1, 5})
		bad.Topics[0].Partitions[0].Partition = number
		if _, err := four.next(bad); !errors.Is(err, ErrProtocol) {
			t.Fatalf("partition %d: %v", number, err)
		}
	}
	twice := metadata("orders", 7, Partition{1, 5}, Partition{1, 5})
	twice.Topics[0].Partitions[1].Partition = 0
	if _, err := four.next(twice); !errors.Is(err, ErrProtocol) {
		t.Fatalf("got %v", err)
	}
	twice.Topics[0].Topic = nil
	if _, err := four.next(twice); !errors.Is(err, ErrProtocol) {
		t.Fatalf("got %v", err)
	}
}

// A moved leader shows after a Refresh, and wakes who waits for a change.
// A leader epoch that was damaged on its way is not known for ever: once answers have gone back behind it for long enough, they count.
func TestDamagedEpoch(t *testing.T) {
	r := newRefresher()
	now := time.Now()
	topo := after(t, newTopology(), metadata("orders", 7, Partition{1, 1<<31 - 1}, Partition{2, 5}))
	tell := func(m *kmsg.MetadataResponse, want Partition) {
		t.Helper()
		topo = after(t, r.base(topo, m, now), m)
		if p, _ := topo.Leader("orders", 0); p != want {
			t.Fatalf("got %+v, want %+v", p, want)
		}
	}
	sane := metadata("orders", 7, Partition{1, 6}, Partition{2, 5})
	version := topo.Version
	tell(sane, Partition{1, 1<<31 - 1})
	now = now.Add(lagging)
	tell(sane, Partition{1, 1<<31 - 1})
	now = now.Add(time.Second)
	tell(sane, Partition{1, 6})
	if topo.Version != version+1 {
		t.Fatalf("version %d after %d", topo.Version, version)
	}
	// One that only lags for a moment never counts.
	old := metadata("orders", 7, Partition{2, 3}, Partition{2, 5})
	for range 3 {
		tell(old, Partition{1, 6})
		now = now.Add(lagging)
		tell(sane, Partition{1, 6})
		now = now.Add(lagging)
	}
}

func TestLeaderMove(t *testing.T) {
	f := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(1, "orders"))
	c := open(t, Config{Bootstrap: f.ListenAddrs()})
	ctx := within(t)
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	before := c.Topology()
	was, ok := before.Leader("orders", 0)
	if !ok {
		t.Fatal("no leader")
	}
	if err := f.MoveTopicPartition("orders", 0, (was.Leader+1)%3); err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-before.Changed():
	case <-ctx.Done():
		t.Fatal("no change")
	}
	now, ok := c.Topology().Leader("orders", 0)
	if !ok || now.Leader != (was.Leader+1)%3 || now.LeaderEpoch <= was.LeaderEpoch || c.Topology().Version != before.Version+1 {
		t.Fatalf("was %+v, now %+v", was, now)
	}
}

// A hundred callers share a few requests; each request begins after the call that it answers; requests are 100 ms apart.
func TestRefreshIsShared(t *testing.T) {
	f := fake(t)
	c := open(t, Config{Bootstrap: f.ListenAddrs()})
	var asked atomic.Int32
	f.ControlKey(3, func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	ctx := within(t)
	begin := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			before := c.refresh.started.Load()
			if err := c.Refresh(ctx); err != nil {
				t.Error(err)
			}
			if c.refresh.started.Load() == before {
				t.Error("Refresh returned without a request begun after it")
			}
		})
	}
	wg.Wait()
	n := int(c.refresh.started.Load())
	// All could call before the first request, or some during it; then those share the second.
	if n < 1 || n > 100 || time.Since(begin) < time.Duration(n-1)*refreshInterval {
		t.Fatalf("%d requests in %v", n, time.Since(begin))
	}
	if n > 10 {
		t.Fatalf("100 callers made %d requests", n)
	}
	if got := int(asked.Load()); got < n {
		t.Fatalf("%d requests reached the broker of %d", got, n)
	}
	ended, cancel := context.WithCancelCause(ctx)
	cause := errors.New("stopped")
	cancel(cause)
	if err := c.Refresh(ended); !errors.Is(err, cause) {
		t.Fatalf("got %v", err)
	}
	// One caller's impatience is not another's failure.
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
}
