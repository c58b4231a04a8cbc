package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"kferry/pipeline/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// twins are two embedded clusters, east and west.
type twins struct {
	testing.TB
	east, west *kfake.Cluster
}

func newTwins(t testing.TB, opts ...kfake.Opt) *twins {
	p := &twins{TB: t}
	p.east, p.west = p.cluster("east", opts...), p.cluster("west", opts...)
	return p
}

func (p *twins) cluster(id string, opts ...kfake.Opt) *kfake.Cluster {
	p.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.ClusterID(id)}, opts...)...)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(c.Close)
	return c
}

func (p *twins) client(c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	p.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, opts...)...)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(cl.Close)
	return cl
}

func (p *twins) topic(c *kfake.Cluster, name string, partitions int32) {
	p.Helper()
	_, err := kadm.NewClient(p.client(c)).CreateTopic(p.Context(), partitions, 1, nil, name)
	if err != nil {
		p.Fatal(err)
	}
}

// write produces n records to a topic, spread over its partitions, in batches of a few.
func (p *twins) write(c *kfake.Cluster, topic string, partitions int32, from, n int) {
	p.Helper()
	cl := p.client(c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(4<<10))
	for i := from; i < from+n; i++ {
		cl.Produce(p.Context(), &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				p.Error(err)
			}
		})
	}
	if err := cl.Flush(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// read gives the keys and values of a topic by partition, up to its end.
func (p *twins) read(c *kfake.Cluster, topic string) map[int32][]string {
	p.Helper()
	ends, err := kadm.NewClient(p.client(c)).ListEndOffsets(p.Context(), topic)
	if err != nil {
		p.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	cl := p.client(c, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	got := make(map[int32][]string)
	ctx, cancel := context.WithTimeout(p.Context(), 20*time.Second)
	defer cancel()
	for left > 0 {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			p.Fatalf("read %s: %v", topic, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			left--
			got[r.Partition] = append(got[r.Partition], fmt.Sprintf("%s=%s", r.Key, r.Value))
		})
	}
	return got
}

func (p *twins) config(links ...LinkConfig) Config {
	cfg := DefaultConfig()
	cfg.AdminListen = ""
	cfg.MemoryBytes = 64 << 20
	cfg.Clusters["east"] = cluster.Config{Alias: "east", Bootstrap: p.east.ListenAddrs()}
	cfg.Clusters["west"] = cluster.Config{Alias: "west", Bootstrap: p.west.ListenAddrs()}
	cfg.Links = links
	return cfg
}

// run runs a pipeline to its end.
func (p *twins) run(cfg Config, opts Options) error {
	p.Helper()
	pl := p.pipeline(cfg, opts)
	defer pl.Close()
	ctx, cancel := context.WithTimeout(p.Context(), 60*time.Second)
	defer cancel()
	err := pl.Run(ctx)
	if n := pl.pool.InUse(); n != 0 {
		p.Errorf("%d bytes of buffers leaked: %v", n, pl.pool.Open())
	}
	if n := pl.credit.Used(); n != 0 {
		p.Errorf("%d bytes of credit leaked", n)
	}
	return err
}

func (p *twins) pipeline(cfg Config, opts Options) *Pipeline {
	p.Helper()
	pl, err := New(cfg, opts, slog.New(slog.NewTextHandler(testLog{p}, nil)))
	if err != nil {
		p.Fatal(err)
	}
	return pl
}

type testLog struct{ testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func (p *twins) same(topic, copied string) {
	p.Helper()
	want, got := p.read(p.east, topic), p.read(p.west, copied)
	if d := cmp.Diff(want, got); d != "" {
		for k := range want {
			if !slices.Equal(want[k], got[k]) {
				p.Errorf("partition %d: %d records on the source, %d on the target", k, len(want[k]), len(got[k]))
			}
		}
		p.Fatal("the copy differs")
	}
}

func TestJobCopiesAndRestartContinues(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 7)
	p.topic(p.east, "empty", 3)
	p.write(p.east, "orders", 7, 0, 20_000)
	cfg := p.config(DefaultLink("east", "west"))
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	p.same("orders", "east.orders")
	p.write(p.east, "orders", 7, 20_000, 5_000)
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	p.same("orders", "east.orders")
}
