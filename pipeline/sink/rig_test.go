package sink

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
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

// patience is how long a test waits for what should take milliseconds.
const patience = 20 * time.Second

// rig is a sink with a fake target behind a proxy.
type rig struct {
	fake    *kfake.Cluster
	proxy   *kafkatest.Proxy // between the sink's own connections and the brokers
	cluster *cluster.Cluster
	sink    *Sink
	stop    func() error // ends Run, once
}

func options() Options {
	return Options{Conns: 2, RequestBytes: 64 << 10, BudgetBytes: 1 << 20, MaxRequests: 100, AckTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		Backoff: cluster.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func start(t testing.TB, opts Options, fakeOpts ...kfake.Opt) *rig {
	t.Helper()
	return startAs(t, nil, opts, fakeOpts...)
}

// startAs is start with credentials.
func startAs(t testing.TB, sasl *cluster.SASL, opts Options, fakeOpts ...kfake.Opt) *rig {
	t.Helper()
	r := &rig{}
	var err error
	if r.fake, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(8, "orders")}, fakeOpts...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.fake.Close)
	if r.proxy, err = kafkatest.ListenProxy(r.fake.ListenAddrs()...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.proxy.Close)
	through := map[string]string{}
	for i, addr := range r.fake.ListenAddrs() {
		through[addr] = r.proxy.Addrs()[i]
	}
	// The client of franz-go stays clear of the proxy: the tests cut and count connections.
	cfg := cluster.Config{Alias: "west", Bootstrap: r.fake.ListenAddrs(), Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if ctx.Value(proxied{}) != nil {
			addr = through[addr]
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	cfg.SASL = sasl
	if r.cluster, err = cluster.Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cluster.Close)
	if err := r.cluster.Refresh(within(t)); err != nil {
		t.Fatal(err)
	}
	r.sink = New(r.cluster, opts, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), proxied{}, true))
	ended := make(chan error, 1)
	go func() { ended <- r.sink.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel(errStop)
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			t.Error("Run does not end")
			return nil
		}
	})
	t.Cleanup(func() {
		if err := r.stop(); !errors.Is(err, errStop) {
			t.Errorf("Run ended with %v", err)
		}
	})
	return r
}

var errStop = errors.New("the test is over")

// proxied marks the context of dials that go through the proxy: those of the sink's own connections.
type proxied struct{}

// answers collects a stream's completions.
type answers struct {
	mu      sync.Mutex
	got     []lane.Completion
	changed chan struct{}
}

func newAnswers() *answers { return &answers{changed: make(chan struct{}, 1)} }

func (a *answers) to(c lane.Completion) {
	a.mu.Lock()
	a.got = append(a.got, c)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// wait returns the completions once there are n.
func (a *answers) wait(t testing.TB, n int) []lane.Completion {
	t.Helper()
	deadline := time.After(patience)
	for {
		a.mu.Lock()
		got := a.got[:len(a.got):len(a.got)]
		a.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-a.changed:
		case <-deadline:
			t.Fatalf("%d of %d completions came", len(got), n)
		}
	}
}

// open opens a stream as soon as the sink runs.
func (r *rig) open(t testing.TB, topic string, partition int32, to func(lane.Completion)) lane.Stream {
	t.Helper()
	var s lane.Stream
	eventually(t, "a stream", func() bool {
		var err error
		s, err = r.sink.Partition(topic, partition).Open(to)
		return err == nil
	})
	return s
}

// eventually polls what has no event.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v", what, patience)
		}
		<-tick.C
	}
}

// check fails unless every entry was answered once, in order, by one of outcomes.
func check(t testing.TB, got []lane.Completion, want []*lane.Entry, outcomes ...lane.Outcome) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d completions for %d entries", len(got), len(want))
	}
	for i, c := range got {
		if c.Entry != want[i] {
			t.Fatalf("completion %d is for another entry", i)
		}
		if len(outcomes) == 1 && c.Outcome != outcomes[0] || len(outcomes) == len(want) && c.Outcome != outcomes[i] {
			t.Fatalf("completion %d: outcome %d, code %d", i, c.Outcome, c.Code)
		}
	}
}

// stored reads the batches of a partition from the fake's log.
func (r *rig) stored(t testing.TB, topic string, partition int32) []batch.Batch {
	t.Helper()
	p, _ := r.cluster.Topology().Leader(topic, partition)
	var all []batch.Batch
	for from := int64(0); ; {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxBytes, req.SessionEpoch = -1, 50<<20, -1
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic, ft.TopicID = topic, r.cluster.Topology().Topics[topic].ID
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = partition, from, 50<<20
		ft.Partitions = append(ft.Partitions, fp)
		req.Topics = append(req.Topics, ft)
		resp, err := req.RequestWith(within(t), r.cluster.Client().Broker(int(p.Leader)))
		if err != nil {
			t.Fatal(err)
		}
		got := resp.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			t.Fatal(err)
		}
		batches, _, err := batch.Scan(nil, nil, got.RecordBatches)
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			return all
		}
		all = append(all, batches...)
		from = batches[len(batches)-1].NextOffset()
	}
}

// produced hands every Produce request to f, which may answer it.
func (r *rig) produced(f func(*kmsg.ProduceRequest) *kmsg.ProduceResponse) {
	r.fake.ControlKey(keyProduce, func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		if resp := f(req.(*kmsg.ProduceRequest)); resp != nil {
			return resp, nil, true
		}
		return nil, nil, false
	})
}

// ok answers a request as a broker does that appends at offset 7.
func ok(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
		for _, p := range topic.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = p.Partition, 7
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// entries numbers n batches of one producer, the i-th of i%3+1 records.
func entries(t testing.TB, pid int64, n, size int) []*lane.Entry {
	t.Helper()
	var all []*lane.Entry
	seq := int32(0)
	for i := range n {
		count := i%3 + 1
		all = append(all, entry(t, batch.Identity{ProducerID: pid, Sequence: seq}, int64(i), count, size))
		seq += int32(count)
	}
	return all
}
