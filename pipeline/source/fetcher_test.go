package source

import (
	"encoding/binary"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/cluster"
)

// bench is two fetchers without a network: what they ask for, and what they are answered, is the test's.
type bench struct {
	t        *testing.T
	source   *Source
	one, two *fetcher
	x        *tap
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c, err := cluster.Open(cluster.Config{Alias: "east", Bootstrap: []string{"127.0.0.1:1"}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	pool := batch.NewPool(0)
	s := New(c, options(), NewCredit(1<<20), pool, slog.New(slog.DiscardHandler))
	b := &bench{t: t, source: s, one: newFetcher(s, 0, false), two: newFetcher(s, 1, false), x: &tap{t: t, changed: make(chan struct{}, 1)}}
	b.x.cursor = s.Open("orders", [16]byte{1}, 0, b.x)
	b.x.moveTo(0)
	b.x.cursor.Ask()
	b.one.restart()
	b.two.restart()
	t.Cleanup(func() {
		if n := pool.InUse(); n != 0 {
			t.Errorf("%d bytes are not released", n)
		}
	})
	return b
}

// at moves the cursor to a fetcher, nil for none.
func (b *bench) at(f *fetcher) {
	b.source.mu.Lock()
	defer b.source.mu.Unlock()
	if old := b.x.cursor.feed.fetcher; old != nil {
		old.removeLocked(b.x.cursor.feed)
	}
	if f != nil {
		f.addLocked(b.x.cursor.feed)
	}
}

// ask has f build a request and returns it.
func (b *bench) ask(f *fetcher) *kmsg.FetchRequest {
	b.t.Helper()
	if !f.build(lastFetch, 1000) {
		b.t.Fatal("nothing to ask for")
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version = lastFetch
	if err := req.ReadFrom(f.body); err != nil {
		b.t.Fatal(err)
	}
	return req
}

// give answers f with a batch of three records at each offset.
func (b *bench) give(f *fetcher, offsets ...int64) {
	b.t.Helper()
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.SessionID = lastFetch, 77
	rt := kmsg.NewFetchResponseTopic()
	rt.TopicID = [16]byte{1}
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.HighWatermark, rp.LastStableOffset, rp.RecordBatches = 100, 100, nil
	for _, offset := range offsets {
		one := wire(3, 10)
		binary.BigEndian.PutUint64(one, uint64(offset))
		rp.RecordBatches = append(rp.RecordBatches, one...)
	}
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	body := resp.AppendTo(nil)
	buf := b.source.pool.Get(len(body))
	copy(buf.Bytes(), body)
	if err := f.take(nil, cluster.Response{Version: lastFetch, Buf: buf, Body: buf.Bytes()}); err != nil {
		b.t.Fatal(err)
	}
	buf.Release()
}

func (b *bench) want(batches int, next int64) {
	b.t.Helper()
	if b.x.got != batches || b.x.next != next {
		b.t.Fatalf("%d batches up to %d, want %d up to %d", b.x.got, b.x.next, batches, next)
	}
}

// An answer counts only where, and for the place that, it was asked.
func TestAnswerTooLate(t *testing.T) {
	t.Run("gone to another connection", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.at(b.two)
		b.give(b.one, 0)
		b.want(0, 0)
		b.ask(b.two)
		b.give(b.two, 0)
		b.want(1, 3)
	})
	t.Run("come back after another connection read on", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.at(b.two)
		b.ask(b.two)
		b.give(b.two, 0)
		b.at(b.one)
		b.give(b.one, 0) // the place of before
		b.want(1, 3)
		if at := b.ask(b.one).Topics[0].Partitions[0].FetchOffset; at != 3 {
			t.Errorf("asked for %d", at)
		}
	})
	t.Run("come back after another connection was asked for a new generation", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.at(b.two)
		b.x.moveTo(0)
		b.ask(b.two)
		b.at(b.one)
		b.give(b.one, 0)
		b.want(0, 0)
	})
	t.Run("moved while under way", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.x.moveTo(0)
		b.give(b.one, 0)
		b.want(0, 0)
		b.ask(b.one)
		b.give(b.one, 0)
		b.want(1, 3)
	})
	t.Run("held while under way", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.x.cursor.Hold()
		b.give(b.one, 0)
		b.want(1, 3)
	})
	t.Run("twice in one answer", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.give(b.one, 0)
		b.give(b.one, 0)
		b.want(1, 3)
	})
	t.Run("closed", func(t *testing.T) {
		b := newBench(t)
		b.at(b.one)
		b.ask(b.one)
		b.x.cursor.Close()
		b.give(b.one, 0)
		b.want(0, 0)
	})
}

// What left a session is forgotten there, unless it is back; a cursor that came back and holds is forgotten too.
func TestForgotten(t *testing.T) {
	other := func(b *bench) *Cursor { // so that there is something to ask for
		c := b.source.Open("orders", [16]byte{1}, 1, b.x)
		c.Ask()
		b.source.mu.Lock()
		delete(b.source.homeless, c.feed)
		b.one.addLocked(c.feed)
		b.source.mu.Unlock()
		return c
	}
	b := newBench(t)
	other(b)
	b.at(b.one)
	b.ask(b.one)
	b.give(b.one, 0)
	b.ask(b.one)
	b.give(b.one, 3)

	b.at(nil)
	b.at(b.one)
	if req := b.ask(b.one); len(req.ForgottenTopics) != 0 || req.Topics[0].Partitions[0].FetchOffset != 6 {
		t.Errorf("back again: %+v", req)
	}
	b.give(b.one, 6)
	b.at(nil)
	b.at(b.one)
	b.x.cursor.Hold()
	if req := b.ask(b.one); len(req.ForgottenTopics) != 1 || len(req.Topics) != 0 {
		t.Errorf("back again, and holding: %+v", req)
	}
	b.x.cursor.Ask()
	b.ask(b.one)
	b.at(b.two)
	if req := b.ask(b.one); len(req.ForgottenTopics) != 1 || req.ForgottenTopics[0].Partitions[0] != 0 {
		t.Errorf("gone: %+v", req)
	}
	// A new cursor of the same partition came before the old one was forgotten.
	b.at(b.one)
	b.ask(b.one)
	b.at(nil)
	again := b.source.Open("orders", [16]byte{1}, 0, b.x)
	again.Ask()
	b.source.mu.Lock()
	b.one.addLocked(again.feed)
	b.source.mu.Unlock()
	if req := b.ask(b.one); len(req.ForgottenTopics) != 0 || len(req.Topics) != 1 {
		t.Errorf("a successor: %+v", req)
	}
}

// What is asked for says what Kafka wants to hear from a consumer.
func TestRequestFields(t *testing.T) {
	b := newBench(t)
	b.at(b.one)
	got := b.ask(b.one)
	p := got.Topics[0].Partitions[0]
	want := kmsg.NewFetchRequestTopicPartition()
	want.Partition, want.FetchOffset, want.PartitionMaxBytes = 0, 0, int32(options().PartitionBytes)
	if p.HighWatermark != want.HighWatermark || p.LogStartOffset != -1 || p.CurrentLeaderEpoch != -1 || p.LastFetchedEpoch != -1 || p.PartitionMaxBytes != want.PartitionMaxBytes {
		t.Errorf("partition: %+v", p)
	}
	if got.ReplicaID != -1 || got.ReplicaState.ID != -1 || got.MinBytes != 1 || got.MaxBytes != 1000 || got.SessionEpoch != 0 || got.IsolationLevel != 0 {
		t.Errorf("request: %+v", got)
	}
}
