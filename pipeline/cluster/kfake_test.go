package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 20 * time.Second

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// fake starts a cluster in this process.
func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("fake-1")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	if cfg.Alias == "" {
		cfg.Alias = "west"
	}
	c, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestDialAndAsk(t *testing.T) {
	f := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(7, "orders"))
	c := open(t, Config{Bootstrap: f.ListenAddrs()})
	ctx := within(t)
	id, err := c.ID(ctx)
	if err != nil || id != "fake-1" {
		t.Fatalf("id %q, %v", id, err)
	}
	topo := c.Topology()
	if n := len(topo.Topics["orders"].Partitions); n != 7 || len(topo.Brokers) != 3 || topo.Version != 1 {
		t.Fatalf("%d partitions, %d brokers, version %d", n, len(topo.Brokers), topo.Version)
	}
	lead, ok := topo.Leader("orders", 3)
	if !ok {
		t.Fatal("no leader")
	}
	conn, err := c.Dial(ctx, lead.Leader)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = "orders"
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = 3, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := conn.RoundTrip(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if got.Partition != 3 || got.ErrorCode != 0 || got.Offset != 0 {
		t.Fatalf("got %+v", got)
	}
}
