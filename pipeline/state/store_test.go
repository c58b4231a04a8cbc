package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = 20 * time.Second

type target struct {
	*testing.T
	fake *kfake.Cluster
	ctx  context.Context
	log  *bytes.Buffer
}

func newTarget(t *testing.T, opts ...kfake.Opt) *target {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return &target{T: t, fake: fake, ctx: ctx, log: new(bytes.Buffer)}
}

func (t *target) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(t.fake.ListenAddrs()...)}, opts...)...)
}

func (t *target) plain() *kgo.Client {
	t.Helper()
	cl, err := t.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (t *target) options(alias, cluster string) Options {
	return Options{
		NewClient: t.client, Alias: alias, ClusterID: cluster,
		FlushEvery: 5 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.log, nil)),
	}
}

func (t *target) open(alias, cluster string) *Store {
	t.Helper()
	s, err := Open(t.ctx, t.options(alias, cluster))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (t *target) must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refuse checks that Open fails with want, saying text.
func (t *target) refuse(opts Options, want error, text string) {
	t.Helper()
	s, err := Open(t.ctx, opts)
	if err == nil {
		s.Close()
		t.Fatalf("opened, want an error that says %q", text)
	}
	if (want != nil && !errors.Is(err, want)) || !strings.Contains(err.Error(), text) {
		t.Fatalf("open: %v\nwant %v with %q", err, want, text)
	}
}

// run starts s.Run and returns how to stop it.
func (t *target) run(s *Store) (stop func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("Run: %v", err)
		}
	}
}

// within polls until ok.
func (t *target) within(what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if err := sleep(t.ctx, time.Millisecond); err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

// end counts the records ever written to the state topic.
func (t *target) end(cl *kgo.Client, topic string) (sum int64) {
	t.Helper()
	partitions := make([]int32, Shards)
	for p := range partitions {
		partitions[p] = int32(p)
	}
	ends, err := listOffsets(t.ctx, cl, topic, partitions, latest)
	t.must(err)
	for _, e := range ends {
		sum += e
	}
	return sum
}

func TestRestartFindsWhatWasStored(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	if name, id := s.Topic(); name != "kferry-state.east.internal" || id == ([16]byte{}) {
		t.Fatalf("topic %s %v", name, id)
	}
	link := Link{FirstStart: at, Include: []string{"orders.*"}, Exclude: []string{"x"}, Naming: "prefix", Start: "latest"}
	if _, ok := s.Link("east.west"); ok {
		t.Fatal("a link before it was put")
	}
	tt.must(s.PutLink(tt.ctx, "east.west", link))
	tt.must(s.PutProducer(tt.ctx, "east.west", 0, 0))
	tt.must(s.PutProducer(tt.ctx, "east.west", 1, 4001))
	starts, cps := map[LaneKey]Start{}, map[LaneKey]Checkpoint{}
	for p := range int32(100) {
		k := LaneKey{Link: "east.west", Topic: "orders", TopicID: [16]byte{1}, Partition: p}
		starts[k] = Start{SrcStart: int64(p), DstStart: 5, How: "latest"}
		cps[k] = Checkpoint{SrcNext: int64(p) + 10, SeqNext: 10, DstNext: 15, PID: 4001, LeaderEpoch: -1}
	}
	tt.must(s.PutStarts(tt.ctx, starts))
	tt.must(s.PutCheckpoints(tt.ctx, cps))
	s.Mark(lane0, cp0)
	tt.must(s.Flush(tt.ctx))
	if !s.OldestMark().IsZero() {
		t.Fatal("a mark is left after Flush")
	}
	s.Close()

	again := tt.open("east", "cid")
	if got, ok := again.Link("east.west"); !ok || cmp.Diff(got, link) != "" {
		t.Fatalf("link %+v, %v", got, ok)
	}
	for residue, want := range map[int32]int64{0: 0, 1: 4001} {
		if pid, ok := again.Producer("east.west", residue); !ok || pid != want {
			t.Fatalf("producer of residue %d: %d, %v", residue, pid, ok)
		}
	}
	if _, ok := again.Producer("west.east", 0); ok {
		t.Fatal("a producer of a link that has none")
	}
	n := 0
	for k, got := range again.Checkpoints() {
		want, ok := s.Checkpoint(k)
		if !ok || got != want {
			t.Fatalf("checkpoint of %v: %+v, want %+v", k, got, want)
		}
		n++
	}
	if n != 101 {
		t.Fatalf("%d checkpoints, want 101", n)
	}
	for k, want := range starts {
		got, ok := again.Start(k)
		if !ok || got.SrcStart != want.SrcStart || got.DstStart != want.DstStart || got.How != want.How || got.At.IsZero() {
			t.Fatalf("start of %v: %+v, want %+v", k, got, want)
		}
	}

	// Another source cluster under the same alias starts clean.
	other := tt.open("east", "rebuilt")
	if _, ok := other.Link("east.west"); ok {
		t.Fatal("a rebuilt source found the old one's link")
	}
	if got, ok := other.Checkpoint(lane0); ok {
		t.Fatalf("a rebuilt source found %+v", got)
	}
}

func TestTopicIsMadeAsDesigned(t *testing.T) {
	tt := newTarget(t)
	var made *kmsg.CreateTopicsRequestTopic
	tt.fake.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		tt.fake.KeepControl()
		made = &r.(*kmsg.CreateTopicsRequest).Topics[0]
		return nil, nil, false
	})
	tt.open("east", "cid")
	if made == nil || made.NumPartitions != 48 || made.ReplicationFactor != -1 || len(made.Configs) != 1 ||
		made.Configs[0].Name != "cleanup.policy" || *made.Configs[0].Value != "compact" {
		t.Fatalf("created %+v", made)
	}
}

func TestChangedAliasFindsItsOwn(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	tt.must(s.PutProducer(tt.ctx, "l", 0, 7))
	s.Close()
	tt.open("renamed", "another").Close() // the new alias's own topic is there, for another cluster

	s = tt.open("renamed", "cid")
	if name, _ := s.Topic(); name != "kferry-state.east.internal" {
		t.Fatalf("opened %s", name)
	}
	if pid, ok := s.Producer("l", 0); !ok || pid != 7 {
		t.Fatalf("producer %d, %v", pid, ok)
	}
	if !strings.Contains(tt.log.String(), "state found under another alias") {
		t.Fatalf("not logged: %s", tt.log)
	}
	got, hidden, err := ReadClusters(tt.ctx, tt.plain())
	tt.must(err)
	if hidden != nil {
		t.Fatalf("hidden: %v", hidden)
	}
	want := []Cluster{
		{Topic: "kferry-state.east.internal", ID: "cid", Alias: "renamed"},
		{Topic: "kferry-state.renamed.internal", ID: "another", Alias: "renamed"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// Another team's state topic, unreadable for us or damaged, is none of ours.
func TestOthersTopicsDoNotHoldUpOurs(t *testing.T) {
	tt := newTarget(t)
	tt.open("theirs", "their-id").Close()
	denied := tt.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: TopicName("theirs"), Err: kerr.TopicAuthorizationFailed, Count: -1})
	tt.open("east", "cid").Close()
	if !strings.Contains(tt.log.String(), "state topics that may not be read were not searched") {
		t.Fatalf("not logged: %s", tt.log)
	}
	_, hidden, err := ReadClusters(tt.ctx, tt.plain())
	tt.must(err)
	if d := cmp.Diff([]string{TopicName("theirs")}, hidden); d != "" {
		t.Fatal(d)
	}
	denied.Remove()
	tt.must(tt.plain().ProduceSync(tt.ctx, &kgo.Record{Topic: TopicName("theirs"), Key: []byte("?")}).FirstErr())
	tt.open("east", "cid").Close()                                                 // found before theirs is looked at
	tt.refuse(tt.options("new", "new-id"), ErrRecord, "read "+TopicName("theirs")) // might be the one
}

// In a locked-down cluster the topic is there, and neither CREATE nor
// DESCRIBE_CONFIGS is ours.
func TestOpenNeedsNoMoreThanReadAndWrite(t *testing.T) {
	tt := newTarget(t)
	tt.open("east", "cid").Close()
	tt.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics, kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	tt.must(tt.open("east", "cid").PutProducer(tt.ctx, "l", 0, 1))
	if !strings.Contains(tt.log.String(), "cleanup.policy of the state topic not checked") {
		t.Fatalf("not logged: %s", tt.log)
	}
}

// Records deleted under a reader move it to the new log start.
func TestReadGoesOnAtTheLogStart(t *testing.T) {
	tt := newTarget(t, kfake.SeedTopics(1, "t"))
	cl := tt.plain()
	for i := range 5 {
		tt.must(cl.ProduceSync(tt.ctx, &kgo.Record{Topic: "t", Value: []byte{byte(i)}}).FirstErr())
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 3}}}}
	_, err := del.RequestWith(tt.ctx, cl)
	tt.must(err)
	var seen []int64
	r := reader{cl: cl, topic: "t", next: map[int32]int64{0: 0}, each: func(r *kgo.Record) error {
		seen = append(seen, r.Offset)
		return nil
	}}
	for range 2 {
		if _, err := r.round(tt.ctx); err != nil && !errors.Is(err, errAgain) {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]int64{3, 4}, seen); d != "" || r.next[0] != 5 {
		t.Fatalf("%s, next %v", d, r.next)
	}
}

func TestOpenRefuses(t *testing.T) {
	tt := newTarget(t, kfake.SeedTopics(3, TopicName("three")), kfake.SeedTopics(Shards, TopicName("delete")))
	tt.refuse(tt.options("three", "cid"), nil, "state topic kferry-state.three.internal has 3 partitions and needs exactly 48")
	tt.refuse(tt.options("delete", "cid"), nil, "state topic kferry-state.delete.internal has cleanup.policy=delete and needs compact alone")
	ro := tt.options("none", "cid")
	ro.ReadOnly = true
	tt.refuse(ro, ErrNoTopic, "no state topic: kferry-state.none.internal does not exist")

	tt.fake.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.CreateTopicsRequest)
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = req.Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	tt.refuse(tt.options("locked", "cid"), kerr.TopicAuthorizationFailed,
		"allow CREATE on it, or create it by hand with 48 partitions and cleanup.policy=compact")
}

func TestOpenNamesTheRecordItCannotRead(t *testing.T) {
	tt := newTarget(t)
	tt.open("east", "cid").Close()
	topic := TopicName("east")
	key := laneRecordKey(kindCheckpoint, "cid", lane0)
	key.Epoch = new(int16)
	tt.must(tt.plain().ProduceSync(tt.ctx, &kgo.Record{
		Topic: topic, Partition: 5, Key: key.encode(),
		Value: []byte(`{"v":2,"src_next":1,"seq_next":1,"dst_next":1,"pid":1,"clean":false}`),
	}).FirstErr())
	tt.refuse(tt.options("east", "cid"), ErrVersion, "read kferry-state.east.internal/5 at 0: ")

	tt.open("west", "cid2").Close()
	tt.must(tt.plain().ProduceSync(tt.ctx, &kgo.Record{Topic: TopicName("west"), Partition: 4, Key: []byte("hello"), Value: []byte("world")}).FirstErr())
	tt.refuse(tt.options("west", "cid2"), ErrRecord, "read kferry-state.west.internal/4 at 0: damaged state record: key: ")
}

func TestManyMarksAreFewWrites(t *testing.T) {
	tt := newTarget(t)
	opts := tt.options("east", "cid")
	opts.FlushEvery = time.Hour
	s, err := Open(tt.ctx, opts)
	tt.must(err)
	defer s.Close()
	cl := tt.plain()
	before := tt.end(cl, s.topic)
	lane := func(p int32) LaneKey { return LaneKey{Link: "l", Topic: "t", Partition: p} }
	for n := range int64(100) {
		for p := range int32(500) {
			s.Mark(lane(p), Checkpoint{SrcNext: n, PID: 1})
		}
	}
	if s.OldestMark().IsZero() {
		t.Fatal("marks wait and none is the oldest")
	}
	if _, ok := s.Checkpoint(lane(0)); ok {
		t.Fatal("a mark counts before it is durable")
	}
	tt.must(s.Flush(tt.ctx))
	if got := tt.end(cl, s.topic) - before; got != 500 {
		t.Fatalf("%d records for 500 lanes", got)
	}
	for p := range int32(500) {
		if cp, ok := s.Checkpoint(lane(p)); !ok || cp.SrcNext != 99 {
			t.Fatalf("lane %d: %+v, %v", p, cp, ok)
		}
		s.Mark(lane(p), Checkpoint{SrcNext: 99, PID: 1})
	}
	if !s.OldestMark().IsZero() {
		t.Fatal("an unchanged lane waits for a write")
	}
	tt.must(s.Flush(tt.ctx))
	if got := tt.end(cl, s.topic) - before; got != 500 {
		t.Fatalf("%d records after an unchanged flush", got)
	}
}

func TestRunWritesMarksAndSurvivesRefusals(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	var refusals atomic.Int32
	refusals.Store(3)
	tt.fake.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		tt.fake.KeepControl()
		if refusals.Add(-1) < 0 {
			return nil, nil, false
		}
		req := r.(*kmsg.ProduceRequest)
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	stop := tt.run(s)
	s.Mark(lane0, cp0)
	tt.within("the mark to be written", func() bool { _, ok := s.Checkpoint(lane0); return ok })
	stop()
	if n := refusals.Load(); n >= 0 {
		t.Fatalf("%d refusals were never met", n+1)
	}
	log := tt.log.String()
	if strings.Count(log, "checkpoints not written, trying again") != 1 || strings.Count(log, "checkpoints written again") != 1 {
		t.Fatalf("want one line for the failure and one for its end:\n%s", log)
	}
}

// A flush never hides what was marked while it ran.
func TestMarkDuringFlushIsWrittenNext(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	s.Mark(lane0, Checkpoint{SrcNext: 1})
	var once sync.Once
	tt.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { s.Mark(lane0, Checkpoint{SrcNext: 2}) })
		return nil, nil, false
	})
	tt.must(s.flush(tt.ctx))
	if cp, _ := s.Checkpoint(lane0); cp.SrcNext != 1 || s.OldestMark().IsZero() {
		t.Fatalf("after the first flush: %+v, oldest %v", cp, s.OldestMark())
	}
	tt.must(s.Flush(tt.ctx))
	if cp, _ := s.Checkpoint(lane0); cp.SrcNext != 2 || !s.OldestMark().IsZero() {
		t.Fatalf("after the second: %+v, oldest %v", cp, s.OldestMark())
	}
}

// A raised epoch deletes the one before, behind itself.
func TestRaisedEpochReplacesTheOld(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	s.Mark(lane0, cp0)
	tt.must(s.Flush(tt.ctx))
	raised := Checkpoint{SrcNext: cp0.SrcNext, DstNext: cp0.DstNext, PID: cp0.PID, Epoch: cp0.Epoch + 1}
	s.Mark(lane0, cp0) // unchanged
	tt.must(s.PutCheckpoints(tt.ctx, map[LaneKey]Checkpoint{lane0: raised}))
	var seen []string
	tt.must(readAll(tt.ctx, tt.plain(), s.topic, []int32{Shard(lane0.Topic, lane0.Partition)}, func(r *kgo.Record) error {
		key, err := decodeKey(r.Key)
		if err == nil && key.Kind == kindCheckpoint {
			seen = append(seen, fmt.Sprintf("%d %v", *key.Epoch, r.Value != nil))
		}
		return err
	}))
	if d := cmp.Diff([]string{"3 true", "4 true", "3 false"}, seen); d != "" {
		t.Fatal(d)
	}
	s.Close()
	if got, ok := tt.open("east", "cid").Checkpoint(lane0); !ok || !got.same(raised) {
		t.Fatalf("loaded %+v, %v", got, ok)
	}
}

func TestFlushGivesUpWithItsContext(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	tt.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		tt.fake.KeepControl()
		return nil, io.ErrClosedPipe, true // cut the connection, each time
	})
	s.Mark(lane0, cp0)
	ctx, cancel := context.WithTimeout(tt.ctx, 200*time.Millisecond)
	defer cancel()
	if err := s.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Flush: %v", err)
	}
	if s.OldestMark().IsZero() {
		t.Fatal("the mark that was not written is gone")
	}
}

// Leaders move while the topic is read: every record comes once, in order.
func TestReadFollowsLeaders(t *testing.T) {
	tt := newTarget(t)
	s := tt.open("east", "cid")
	cps := map[LaneKey]Checkpoint{}
	for p := range int32(300) {
		cps[LaneKey{Link: "l", Topic: "t", Partition: p}] = Checkpoint{SrcNext: int64(p)}
	}
	tt.must(s.PutCheckpoints(tt.ctx, cps))
	var fetches atomic.Int32
	tt.fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		tt.fake.KeepControl()
		if n := fetches.Add(1); n <= 3 {
			for p := range int32(Shards) {
				if err := tt.fake.MoveTopicPartition(s.topic, p, n%2); err != nil {
					t.Error(err)
				}
			}
		}
		return nil, nil, false
	})
	again := tt.open("east", "cid")
	for k, want := range cps {
		if got, ok := again.Checkpoint(k); !ok || got.SrcNext != want.SrcNext {
			t.Fatalf("%v: %+v, %v", k, got, ok)
		}
	}
}
