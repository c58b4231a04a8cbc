package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/kafkatest"
)

// numbers writes numbered records to a topic without a pause, acks=all: in each partition 0, 1, 2, …, a few to a batch.
type numbers struct {
	t          *testing.T
	client     *kgo.Client
	topic      string
	partitions int32
	next       int // the number that comes next in each partition
	cancel     context.CancelFunc
	done       sync.WaitGroup
}

// startNumbers starts writing; the test has to finish it.
func startNumbers(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32) *numbers {
	t.Helper()
	n := newNumbers(t, k, topic, partitions)
	ctx, cancel := context.WithCancel(t.Context())
	n.cancel = cancel
	n.done.Go(func() {
		pace := time.NewTicker(3 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
				n.write(1 + n.next%7)
			}
		}
	})
	t.Cleanup(func() { n.finish() })
	return n
}

func newNumbers(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32) *numbers {
	t.Helper()
	return &numbers{t: t, topic: topic, partitions: partitions, cancel: func() {},
		client: client(t, k, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))}
}

// write appends so many records to each partition, as one batch each where it can, and returns when they are stored.
func (n *numbers) write(count int) {
	var records []*kgo.Record
	for range count {
		for p := range n.partitions {
			records = append(records, &kgo.Record{Topic: n.topic, Partition: p, Key: fmt.Appendf(nil, "%d", n.next),
				Value: fmt.Appendf(nil, "%d %s", n.next, padding)})
		}
		n.next++
	}
	if err := n.client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		n.t.Errorf("write to %s: %v", n.topic, err)
	}
}

// padding makes records long enough that a request is cut in the middle of one.
var padding = strings.Repeat("kferry ", 30)

// finish ends the writing and returns how many numbers each partition holds.
func (n *numbers) finish() int {
	n.cancel()
	n.done.Wait()
	return n.next
}

// read returns the records of a topic by partition, up to its present end, and of transactions only what was committed.
func read(t *testing.T, k *kafkatest.Kafka, topic string) map[int32][]*kgo.Record {
	t.Helper()
	starts, ends := bounds(t, k, topic)
	from := make(map[int32]kgo.Offset)
	for p, start := range starts {
		if start < ends[p] {
			from[p] = kgo.NewOffset().At(start)
		}
	}
	records := make(map[int32][]*kgo.Record)
	if len(from) == 0 {
		return records
	}
	cl := client(t, k, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(from) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < ends[r.Partition] && !r.Attrs.IsControl() {
				records[r.Partition] = append(records[r.Partition], r)
			}
			if r.Offset >= ends[r.Partition]-1 {
				delete(from, r.Partition)
			}
		})
	}
	cl.Close()
	return records
}

// counted gives the numbers in a topic, by partition and in the log's order.
func counted(t *testing.T, k *kafkatest.Kafka, topic string) map[int32][]int {
	t.Helper()
	found := make(map[int32][]int)
	for p, records := range read(t, k, topic) {
		for _, r := range records {
			n, err := strconv.Atoi(string(r.Key))
			if err != nil {
				t.Fatalf("%s/%d at %d: the key %q is no number", topic, p, r.Offset, r.Key)
			}
			found[p] = append(found[p], n)
		}
	}
	return found
}

// exactly checks that each partition holds first, first+1, … end-1: nothing twice, nothing missing, in order.
func exactly(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32, first, end int) {
	t.Helper()
	found := counted(t, k, topic)
	for p := range partitions {
		for i, n := range found[p] {
			if n != first+i {
				t.Fatalf("%s/%d: record %d has number %d, want %d; %d records, want %d", topic, p, i, n, first+i, len(found[p]), end-first)
			}
		}
		if len(found[p]) != end-first {
			t.Fatalf("%s/%d: %d records, want %d", topic, p, len(found[p]), end-first)
		}
	}
}

// bounds are the log starts and the high watermarks of a topic's partitions; both are empty for a topic that is not there.
func bounds(t *testing.T, k *kafkatest.Kafka, topic string) (starts, ends map[int32]int64) {
	t.Helper()
	return boundsBy(t, adminOf(t, k), topic)
}

// ends are the high watermarks of a topic's partitions.
func ends(t *testing.T, k *kafkatest.Kafka, topic string) map[int32]int64 {
	t.Helper()
	_, ends := bounds(t, k, topic)
	return ends
}

func boundsBy(t *testing.T, admin *kadm.Client, topic string) (starts, ends map[int32]int64) {
	t.Helper()
	offsets := func(list func(context.Context, ...string) (kadm.ListedOffsets, error)) map[int32]int64 {
		m := make(map[int32]int64)
		listed, err := list(t.Context(), topic)
		if err != nil {
			return m
		}
		for p, o := range listed[topic] {
			if o.Err == nil {
				m[p] = o.Offset
			}
		}
		return m
	}
	return offsets(admin.ListStartOffsets), offsets(admin.ListEndOffsets)
}

// written is how far a topic's partitions reach together.
func written(t *testing.T, admin *kadm.Client, topic string) (sum int64) {
	t.Helper()
	_, ends := boundsBy(t, admin, topic)
	for _, end := range ends {
		sum += end
	}
	return sum
}

// waitWritten returns when a topic's partitions reach so far together.
func waitWritten(t *testing.T, admin *kadm.Client, topic string, sum int64) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d records in %s", sum, topic), func() bool { return written(t, admin, topic) >= sum })
}

// sequences checks a copied partition's batches: each goes on where the one before ended, under one producer id and
// epoch. It returns both.
func sequences(t *testing.T, k *kafkatest.Kafka, topic string, partition int32) (pid int64, epoch int16) {
	t.Helper()
	pid, epoch = -1, -1
	next := int32(0)
	for i, b := range heads(t, k, topic, partition) {
		if i == 0 {
			pid, epoch = b.PID, b.Epoch
		}
		if b.PID != pid || b.Epoch != epoch || b.Sequence != next {
			t.Fatalf("%s/%d at %d: batch %d has producer id %d, epoch %d, sequence %d; want %d, %d, %d", topic, partition, b.Offset, i, b.PID, b.Epoch, b.Sequence, pid, epoch, next)
		}
		next += b.Count
	}
	return pid, epoch
}
