package source

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
	"kferry/pipeline/lane"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 20 * time.Second

func options() Options {
	return Options{FetchBytes: 64 << 10, PartitionBytes: 16 << 10, Conns: 2, QuietWait: 50 * time.Millisecond, BacklogWait: 5 * time.Millisecond,
		QuietAfter: time.Minute, Backoff: cluster.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}}
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
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

// rig is a source over a fake cluster behind a proxy.
type rig struct {
	fake    *kfake.Cluster
	proxy   *kafkatest.Proxy // between the source's own connections and the brokers
	cluster *cluster.Cluster
	source  *Source
	credit  *Credit
	pool    *batch.Pool
	stop    func() error // ends Run, once
}

var errStop = errors.New("the test is over")

// proxied marks the context of dials that go through the proxy: those of the source's own connections.
type proxied struct{}

func start(t testing.TB, opts Options, fakeOpts ...kfake.Opt) *rig {
	t.Helper()
	return startIn(t, "", opts, fakeOpts...)
}

// startIn is start for a source that is in a rack.
func startIn(t testing.TB, rack string, opts Options, fakeOpts ...kfake.Opt) *rig {
	t.Helper()
	r := &rig{credit: NewCredit(64 << 20), pool: batch.NewPool(0)}
	var err error
	if r.fake, err = kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(4, "orders", "audit")}, fakeOpts...)...); err != nil {
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
	cfg := cluster.Config{Alias: "east", Rack: rack, Bootstrap: r.fake.ListenAddrs(), Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if ctx.Value(proxied{}) != nil {
			addr = through[addr]
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	if r.cluster, err = cluster.Open(cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cluster.Close)
	if err := r.cluster.Refresh(within(t)); err != nil {
		t.Fatal(err)
	}
	r.source = New(r.cluster, opts, r.credit, r.pool, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), proxied{}, true))
	ended := make(chan error, 1)
	go func() { ended <- r.source.Run(ctx) }()
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
		if n := r.credit.Used(); n != 0 {
			t.Errorf("%d bytes of credit are not returned", n)
		}
		if n := r.pool.InUse(); n != 0 {
			t.Errorf("%d bytes are not released: %v", n, r.pool.Open())
		}
	})
	return r
}

// consistent checks what is counted, and that no session would hold a partition twice.
func (s *Source) consistent(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.readers {
		for _, f := range slices.Concat(r.quiet, r.backlog) {
			asking, parts := 0, make(map[*partition]bool)
			for x := range f.feeds {
				if x.wantsLocked() {
					asking++
				}
				if x.fetcher != f || parts[x.part] || !slices.Contains(x.part.feeds, x) {
					t.Errorf("broker %d: a feed of %v is not where it should be, or twice", f.broker, x.part.partitionKey)
				}
				parts[x.part] = true
			}
			if f.asking != asking {
				t.Errorf("broker %d: %d feeds ask, %d are counted", f.broker, asking, f.asking)
			}
		}
	}
	for _, p := range s.partitions {
		for _, f := range p.feeds {
			if len(f.members) == 0 {
				t.Errorf("%v: a feed without members", p.partitionKey)
			}
			for _, c := range f.members {
				if c.feed != f {
					t.Errorf("%v: a cursor is a member of another feed", p.partitionKey)
				}
			}
		}
	}
}

// tap is a lane that checks what it is given and lets go of it.
type tap struct {
	t      testing.TB
	cursor *Cursor

	mu      sync.Mutex
	changed chan struct{}
	gen     uint32
	next    int64 // expected; the first batch of a generation may begin before it
	loose   bool
	codes   []int16
	got     int // batches, in all generations
	parts   int // deliveries
	diverge []lane.Diverging
	needs   int64         // the last one told
	keep    bool          // hold on to the batches
	kept    []batch.Batch // held
	busy    atomic.Bool   // has enough to do
}

func (x *tap) Hungry() bool { return !x.busy.Load() }

// open opens a tap of a partition, at offset 0.
func (r *rig) open(t testing.TB, topic string, partition int32) *tap {
	x := &tap{t: t, changed: make(chan struct{}, 1)}
	x.cursor = r.source.Open(topic, r.cluster.Topology().Topics[topic].ID, partition, x)
	t.Cleanup(x.close)
	x.moveTo(0)
	return x
}

func (x *tap) close() {
	x.cursor.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range x.kept {
		b.Release()
	}
	x.kept = nil
}

func (x *tap) moveTo(offset int64) {
	x.mu.Lock()
	x.gen++
	x.next, x.loose = offset, true
	gen := x.gen
	x.mu.Unlock()
	x.cursor.MoveTo(offset, -1, gen)
}

func (x *tap) Deliver(d lane.Delivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.cursor.part.source; s.mu.TryLock() { // else another connection's delivery could overtake this one
		s.mu.Unlock()
		x.t.Error("a delivery outside of the source's lock")
	}
	if d.Gen != x.cursor.gen {
		x.t.Errorf("generation %d is delivered, it is %d", d.Gen, x.cursor.gen)
	}
	x.parts++
	if d.Code != 0 {
		x.codes = append(x.codes, d.Code)
	}
	x.needs = max(x.needs, d.Needs)
	if d.Diverging != nil {
		x.diverge = append(x.diverge, *d.Diverging)
	}
	for _, b := range d.Batches {
		if d.Gen == x.gen { // else moveTo is about to change it
			if b.BaseOffset() != x.next && !(x.loose && b.BaseOffset() < x.next && x.next < b.NextOffset()) {
				x.t.Errorf("%s/%d: batch at %d, expected %d", x.cursor.part.topic, x.cursor.part.number, b.BaseOffset(), x.next)
			}
			if b.Verify() != nil {
				x.t.Errorf("%s/%d: batch at %d is damaged", x.cursor.part.topic, x.cursor.part.number, b.BaseOffset())
			}
			x.next, x.loose = b.NextOffset(), false
			x.got++
		}
		if x.keep {
			x.kept = append(x.kept, b)
		} else {
			b.Release()
		}
	}
	select {
	case x.changed <- struct{}{}:
	default:
	}
}

// wait waits until f, which is called under the lock, holds.
func (x *tap) wait(t testing.TB, what string, f func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		x.mu.Lock()
		ok := f()
		x.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-x.changed:
		case <-deadline:
			x.mu.Lock()
			defer x.mu.Unlock()
			t.Fatalf("%s/%d: %s: not in %v (next %d, codes %v)", x.cursor.part.topic, x.cursor.part.number, what, patience, x.next, x.codes)
		}
	}
}

// reach waits until all before offset has come.
func (x *tap) reach(t testing.TB, offset int64) {
	t.Helper()
	x.wait(t, "the end", func() bool { return x.next >= offset })
}

// wire returns a batch of n records with size bytes of payload, written by kmsg.
func wire(n, size int) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Length: int32(49 + size), LastOffsetDelta: int32(n - 1), FirstTimestamp: 1_700_000_000_000,
		MaxTimestamp: 1_700_000_000_000, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: bytes.Repeat([]byte{7}, size),
	}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// write appends a batch and returns the offset behind it.
func (r *rig) write(t testing.TB, topic string, partition int32, n, size int) int64 {
	t.Helper()
	for {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 1000
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic, rt.TopicID = topic, r.cluster.Topology().Topics[topic].ID
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = partition, wire(n, size)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(within(t), r.cluster.Client().Broker(int(r.fake.LeaderFor(topic, partition))))
		if err != nil {
			t.Fatal(err)
		}
		p := resp.Topics[0].Partitions[0]
		if p.ErrorCode == kerr.NotLeaderForPartition.Code { // moved in between
			continue
		}
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			t.Fatal(err)
		}
		return p.BaseOffset + int64(n)
	}
}

// fetched hands every Fetch request to f, which may answer it.
func (r *rig) fetched(f func(*kmsg.FetchRequest) *kmsg.FetchResponse) {
	r.fake.ControlKey(keyFetch, func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		if resp := f(req.(*kmsg.FetchRequest)); resp != nil {
			return resp, nil, true
		}
		return nil, nil, false
	})
}

// answer is a sessionless response with one part.
func (r *rig) answer(req *kmsg.FetchRequest, topic string, p kmsg.FetchResponseTopicPartition) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = topic, r.cluster.Topology().Topics[topic].ID
	rt.Partitions = append(rt.Partitions, p)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

func asksFor(req *kmsg.FetchRequest, partition int32) (kmsg.FetchRequestTopicPartition, bool) {
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			if p.Partition == partition {
				return p, true
			}
		}
	}
	return kmsg.FetchRequestTopicPartition{}, false
}

// versionsOf gives a fake's option for each version of Fetch that it should know at most.
func versionsOf(all ...int16) (opts []kfake.Opt) {
	for _, v := range all {
		known := kversion.Stable()
		known.SetMaxKeyVersion(keyFetch, v)
		opts = append(opts, kfake.MaxVersions(known))
	}
	return opts
}
