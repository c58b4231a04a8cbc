package source

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/lane"
)

// Every error code of a partition either passes by itself, in silence, or is told once; then nothing is fetched until the lane
// moves.
func TestEveryCode(t *testing.T) {
	cured := []int16{
		-1, kerr.UnknownTopicOrPartition.Code, kerr.LeaderNotAvailable.Code, kerr.NotLeaderForPartition.Code, kerr.ReplicaNotAvailable.Code,
		kerr.KafkaStorageError.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code, kerr.OffsetNotAvailable.Code, kerr.UnknownTopicID.Code,
	}
	opts := options()
	opts.Conns = 1
	r := start(t, opts, kfake.NumBrokers(1))
	var inject atomic.Int32
	var asked atomic.Int32
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		p, ok := asksFor(req, 0)
		if !ok || p.FetchOffset != 0 {
			return nil
		}
		asked.Add(1)
		code := int16(inject.Swap(0))
		if code == 0 {
			return nil
		}
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.ErrorCode, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = 0, code, -1, -1, -1
		return r.answer(req, "orders", rp)
	})
	x, other := r.open(t, "orders", 0), r.open(t, "orders", 1)
	other.cursor.Ask()
	x.cursor.Ask()
	end := r.write(t, "orders", 0, 3, 100)
	x.reach(t, end)
	beside := int64(0)
	for code := int16(-1); code < 140; code++ {
		if code == 0 {
			continue
		}
		x.cursor.Hold()
		inject.Store(int32(code))
		x.moveTo(0)
		x.cursor.Ask()
		if !slices.Contains(cured, code) {
			x.wait(t, fmt.Sprintf("code %d", code), func() bool { return slices.Equal(x.codes, []int16{code}) })
			n := asked.Load()
			beside = r.write(t, "orders", 1, 1, 10)
			other.reach(t, beside) // a fetch went by
			if asked.Load() != n {
				t.Fatalf("after code %d the place is asked for again", code)
			}
			x.moveTo(0)
		}
		x.reach(t, end)
		x.mu.Lock()
		if n := len(x.codes); n > 0 && slices.Contains(cured, code) || n > 1 {
			t.Errorf("code %d is told as %v", code, x.codes)
		}
		x.codes = nil
		x.mu.Unlock()
	}
}

// A place outside the log is told once.
func TestOutOfRange(t *testing.T) {
	r := start(t, options())
	x := r.open(t, "orders", 0)
	r.write(t, "orders", 0, 3, 100)
	x.moveTo(1000)
	x.cursor.Ask()
	x.wait(t, "the error", func() bool { return len(x.codes) > 0 })
	x.cursor.Hold()
	x.cursor.Ask()
	r.write(t, "orders", 0, 3, 100)
	start, end, err := x.cursor.Bounds(within(t))
	if err != nil || start != 0 || end != 6 {
		t.Errorf("bounds %d to %d, %v", start, end, err)
	}
	x.moveTo(4)
	x.reach(t, 6)
	if !slices.Equal(x.codes, []int16{1}) || x.got != 1 {
		t.Errorf("codes %v, %d batches", x.codes, x.got)
	}
}

// The log no longer holds what was read: told once.
func TestDiverging(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts, kfake.NumBrokers(1))
	var n atomic.Int32
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		p, ok := asksFor(req, 0)
		if !ok || p.LastFetchedEpoch != 5 {
			return nil
		}
		n.Add(1)
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 0, 4, 51
		return r.answer(req, "orders", rp)
	})
	x, other := r.open(t, "orders", 0), r.open(t, "orders", 1)
	x.gen++
	x.cursor.MoveTo(60, 5, x.gen)
	x.cursor.Ask()
	other.cursor.Ask()
	x.wait(t, "the end of the common log", func() bool { return len(x.diverge) > 0 })
	for range 3 {
		other.reach(t, r.write(t, "orders", 1, 1, 10))
	}
	if want := []lane.Diverging{{Epoch: 4, EndOffset: 51}}; !slices.Equal(x.diverge, want) || n.Load() != 1 || x.codes != nil {
		t.Errorf("%+v in %d requests, codes %v", x.diverge, n.Load(), x.codes)
	}
}

// A batch that does not fit what was asked for is asked for by its size; one of an impossible size is damage.
func TestLargeBatch(t *testing.T) {
	opts := options()
	opts.Conns, opts.PartitionBytes, opts.FetchBytes = 1, 1000, 1000
	r := start(t, opts, kfake.NumBrokers(1))
	large := wire(1, 5000)
	binary.BigEndian.PutUint64(large[0:], 0)
	var sizes []int32 // of the fake's goroutine, read after the last answer
	done := make(chan struct{}, 1)
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		p, ok := asksFor(req, 0)
		if !ok {
			return nil
		}
		sizes = append(sizes, p.PartitionMaxBytes)
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = 0, 2, 2, 0
		switch p.FetchOffset {
		case 0: // as Kafka cuts
			rp.RecordBatches = large[:min(len(large), int(p.PartitionMaxBytes))]
		case 1:
			rp.RecordBatches = slices.Clone(large[:100])
			binary.BigEndian.PutUint64(rp.RecordBatches, 1)
			binary.BigEndian.PutUint32(rp.RecordBatches[8:], 1<<30)
			select {
			case done <- struct{}{}:
			default:
			}
		}
		return r.answer(req, "orders", rp)
	})
	x, other := r.open(t, "orders", 0), r.open(t, "orders", 1)
	x.cursor.Ask()
	other.cursor.Ask()
	x.wait(t, "the damage", func() bool { return len(x.codes) > 0 })
	<-done
	if want := []int32{1000, int32(len(large)), 1000}; !slices.Equal(sizes, want) {
		t.Errorf("asked for %v, want %v", sizes, want)
	}
	if x.got != 1 || !slices.Equal(x.codes, []int16{kerr.CorruptMessage.Code}) {
		t.Errorf("%d batches, codes %v", x.got, x.codes)
	}
}

// A response that makes no sense ends the connection, and what comes over the next one is read on from the same place.
func TestNonsense(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts, kfake.NumBrokers(1))
	var n atomic.Int32
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if n.Add(1)%3 != 0 {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	})
	x := r.open(t, "orders", 0)
	x.cursor.Ask()
	for range 20 {
		x.reach(t, r.write(t, "orders", 0, 3, 100))
	}
	if r.proxy.Accepted() < 2 || x.codes != nil || x.got != 20 {
		t.Errorf("%d connections, codes %v, %d batches", r.proxy.Accepted(), x.codes, x.got)
	}
}

// A topic that is gone is told after a while; one that was made anew under its name is another log, and told at once.
func TestTopicGone(t *testing.T) {
	for i, opt := range versionsOf(12, 18) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			opts := options()
			opts.Conns, opts.QuietWait = 1, 5*time.Millisecond
			r := start(t, opts, kfake.NumBrokers(1), opt)
			gone, anew, held := r.open(t, "orders", 0), r.open(t, "audit", 0), r.open(t, "audit", 1)
			for _, x := range []*tap{gone, anew, held} {
				x.cursor.Ask()
				x.reach(t, r.write(t, x.cursor.part.topic, x.cursor.part.number, 3, 100))
			}
			held.cursor.Hold()
			if i == 0 { // by name there is no telling a new log before the metadata have
				anew.cursor.Hold()
			}
			before := r.source.fetches.Load()
			eventually(t, "the end of fetches for what holds", func() bool { return r.source.fetches.Load() > before+4 })
			if _, err := r.cluster.Admin().DeleteTopics(within(t), "orders", "audit"); err != nil {
				t.Fatal(err)
			}
			if _, err := r.cluster.Admin().CreateTopic(within(t), 4, 1, nil, "audit"); err != nil {
				t.Fatal(err)
			}
			if err := r.cluster.Refresh(within(t)); err != nil {
				t.Fatal(err)
			}
			r.write(t, "audit", 0, 9, 100)
			r.write(t, "audit", 1, 9, 100)
			anew.cursor.Ask()
			anew.wait(t, "the new topic", func() bool { return len(anew.codes) > 0 })
			held.cursor.Ask()
			held.wait(t, "the new topic", func() bool { return len(held.codes) > 0 })
			gone.wait(t, "the end of the topic", func() bool { return len(gone.codes) > 0 })
			for _, x := range []*tap{anew, held} {
				if c := x.codes[0]; c != kerr.UnknownTopicID.Code && c != kerr.InconsistentTopicID.Code || len(x.codes) != 1 || x.got != 1 {
					t.Errorf("made anew: codes %v, %d batches", x.codes, x.got)
				}
			}
			if len(gone.codes) != 1 || gone.codes[0] != kerr.UnknownTopicOrPartition.Code && gone.codes[0] != kerr.UnknownTopicID.Code {
				t.Errorf("gone: codes %v", gone.codes)
			}
		})
	}
}

// Closed means that nothing comes any more, also of what is under way.
func TestCloseUnderWay(t *testing.T) {
	opts := options()
	opts.Conns = 1
	r := start(t, opts, kfake.NumBrokers(1))
	x, y := r.open(t, "orders", 0), r.open(t, "orders", 1)
	x.cursor.Ask()
	y.cursor.Ask()
	x.reach(t, r.write(t, "orders", 0, 1, 100))
	y.reach(t, r.write(t, "orders", 1, 1, 100))
	r.proxy.Answers.Stall()
	n := r.write(t, "orders", 0, 1, 100)
	end := r.write(t, "orders", 1, 1, 100)
	x.cursor.Close()
	x.cursor.Close()
	x.cursor.Ask()
	x.mu.Lock()
	parts := x.parts
	x.mu.Unlock()
	r.proxy.Answers.Resume()
	y.reach(t, end)
	// Its successor is another cursor of the same partition.
	z := r.open(t, "orders", 0)
	z.cursor.Ask()
	z.reach(t, n)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.parts != parts || x.got != 1 {
		t.Errorf("%d deliveries after Close", x.parts-parts)
	}
}

// What responses pin stays within the credit. Who holds on to it stops the reading, and nothing else.
func TestCredit(t *testing.T) {
	opts := options()
	opts.FetchBytes, opts.PartitionBytes = 32<<10, 8<<10
	r := start(t, opts)
	r.credit = NewCredit(1 << 20)
	r.source.credit = r.credit
	r.source.largest.Store(8 << 10)
	var taps []*tap
	ends := make([]int64, 4)
	for p := range int32(4) {
		for range 150 {
			ends[p] = r.write(t, "orders", p, 1, 6000)
		}
		x := r.open(t, "orders", p)
		x.keep = true
		taps = append(taps, x)
	}
	for _, x := range taps {
		x.cursor.Ask()
	}
	eventually(t, "readers that wait", func() bool { return r.credit.Waiting() >= 2 })
	within := func() {
		t.Helper()
		// Small responses of handshakes are not counted.
		if used, limit, pinned := r.credit.Used(), r.credit.Limit(), r.pool.InUse(); used > limit || pinned > limit+64<<10 {
			t.Fatalf("%d bytes of %d are used, %d pinned", used, limit, pinned)
		}
	}
	within()
	if r.credit.Used() < r.credit.Limit()/2 {
		t.Errorf("readers wait with %d of %d bytes used", r.credit.Used(), r.credit.Limit())
	}
	eventually(t, "the ends", func() bool {
		within()
		done := true
		for p, x := range taps {
			x.mu.Lock()
			for _, b := range x.kept {
				b.Release()
			}
			x.kept = nil
			done = done && x.next == ends[p]
			x.mu.Unlock()
		}
		return done
	})
}

// A batch that takes more memory than there is stops its partition with the number that is needed, whether the broker sends it whole or
// as much as was asked for; what lies before it is delivered, and the other partitions go on.
func TestBatchBeyondMemory(t *testing.T) {
	for _, whole := range []bool{true, false} {
		opts := options()
		opts.Conns = 1
		r := start(t, opts, kfake.NumBrokers(1))
		small, large := wire(1, 100), wire(1, 64<<20-4096)
		binary.BigEndian.PutUint64(small, 0)
		binary.BigEndian.PutUint64(large, 1)
		r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			p, ok := asksFor(req, 0)
			if !ok {
				return nil
			}
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = 0, 2, 2, 0
			switch {
			case p.FetchOffset == 0:
				rp.RecordBatches = small
			case whole:
				rp.RecordBatches = large
			default:
				rp.RecordBatches = large[:p.PartitionMaxBytes]
			}
			return r.answer(req, "orders", rp)
		})
		x, other := r.open(t, "orders", 0), r.open(t, "orders", 1)
		x.cursor.Ask()
		other.cursor.Ask()
		x.wait(t, "the batch that is too much", func() bool { return x.needs > 0 })
		if x.needs <= r.credit.Limit() || x.got != 1 || x.codes != nil {
			t.Errorf("whole %t: %d bytes are said to be needed, %d batches came, codes %v", whole, x.needs, x.got, x.codes)
		}
		other.reach(t, r.write(t, "orders", 1, 1, 10))
	}
}

// A lane that holds a hundred bytes of a large response pins all of it, and the credit says so until they are released.
func TestSmallRemainderPinsItsResponse(t *testing.T) {
	opts := options()
	opts.Conns, opts.FetchBytes, opts.PartitionBytes = 1, 40<<20, 40<<20
	r := start(t, opts, kfake.NumBrokers(1))
	small, large := wire(1, 100), wire(1, 33<<20)
	binary.BigEndian.PutUint64(small, 0)
	binary.BigEndian.PutUint64(large, 0)
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		p, asked := asksFor(req, 0)
		q, other := asksFor(req, 1)
		if !asked || !other || p.FetchOffset != 0 || q.FetchOffset != 0 {
			return nil
		}
		rp, rq := kmsg.NewFetchResponseTopicPartition(), kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset, rp.RecordBatches = 0, 1, 1, 0, small
		rq.Partition, rq.HighWatermark, rq.LastStableOffset, rq.LogStartOffset, rq.RecordBatches = 1, 1, 1, 0, large
		resp := r.answer(req, "orders", rp)
		resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, rq)
		return resp
	})
	x, y := r.open(t, "orders", 0), r.open(t, "orders", 1)
	x.keep = true
	x.cursor.Ask()
	y.cursor.Ask()
	x.wait(t, "the small batch", func() bool { return x.got == 1 })
	y.wait(t, "the large batch", func() bool { return y.got == 1 })
	x.cursor.Hold()
	y.cursor.Hold()
	eventually(t, "the rest to be returned", func() bool { return r.pool.InUse() < 65<<20 })
	if used := r.credit.Used(); used < 64<<20 {
		t.Errorf("%d bytes of credit are used while a batch pins a buffer of 64 MiB", used)
	}
	x.close()
	eventually(t, "all to be returned", func() bool { return r.credit.Used() == 0 })
}
