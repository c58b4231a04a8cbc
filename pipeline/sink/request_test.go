package sink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/lane"
)

// The first and the last version of Produce that we speak.
const (
	firstProduce = 3
	lastProduce  = 13
)

// wire returns a batch of n records whose payload is size bytes, as it lies in a source's log. kmsg writes it.
func wire(base int64, n, size int) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: base, PartitionLeaderEpoch: 7, Magic: 2, Length: int32(49 + size), LastOffsetDelta: int32(n - 1),
		FirstTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_000, ProducerID: 4711, ProducerEpoch: 3, FirstSequence: 99,
		NumRecords: int32(n), Records: bytes.Repeat([]byte{byte(base), byte(base >> 8)}, size)[:size],
	}
	out := b.AppendTo(nil)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// entry returns a numbered batch of n records, ready to be sent.
func entry(t testing.TB, id batch.Identity, base int64, n, size int) *lane.Entry {
	t.Helper()
	batches, tail, err := batch.Scan(nil, nil, wire(base, n, size))
	if err != nil || tail != 0 || len(batches) != 1 {
		t.Fatalf("scan: %d batches, tail %d, %v", len(batches), tail, err)
	}
	e := &lane.Entry{Batch: batches[0]}
	batch.Patch(&e.Header, e.Batch, id)
	return e
}

func items(t testing.TB) []item {
	orders, audit := &topicRef{"orders", [16]byte{1}}, &topicRef{"audit", [16]byte{2}}
	anew := &topicRef{"orders", [16]byte{3}}
	var all []item
	for i, s := range []*stream{
		{topic: orders, partition: 3}, {topic: audit, partition: 0}, {topic: orders, partition: 0}, {topic: anew, partition: 9}, {topic: audit, partition: 500},
	} {
		id := batch.Identity{ProducerID: int64(900 + i), Epoch: int16(i), Sequence: int32(100 * i)}
		all = append(all, item{stream: s, entry: entry(t, id, int64(1000*i), i+1, 10+i*5000)})
	}
	return all
}

func TestRequestAgainstKmsg(t *testing.T) {
	for version := int16(firstProduce); version <= lastProduce; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			var r request
			for round := range 2 { // the second uses the first one's memory
				its := items(t)
				bufs := r.build(version, its, 1500*time.Millisecond)
				payloads := 0
				for _, b := range bufs {
					for _, it := range its {
						if p := it.entry.Batch.Payload(); len(p) > 0 && len(b) == len(p) && &b[0] == &p[0] {
							payloads++
						}
					}
				}
				if payloads != len(its) {
					t.Fatalf("round %d: %d payloads go out from where they lie, of %d", round, payloads, len(its))
				}
				got := kmsg.NewPtrProduceRequest()
				got.Version = version
				body := bytes.Join(bufs, nil)
				if err := got.ReadFrom(body); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.AppendTo(nil), body) {
					t.Fatal("kmsg writes the same request in another way")
				}
				if got.TransactionID != nil || got.Acks != -1 || got.TimeoutMillis != 1500 {
					t.Fatalf("transaction %v, acks %d, timeout %d", got.TransactionID, got.Acks, got.TimeoutMillis)
				}
				checkTopics(t, version, got, its)
			}
		})
	}
}

// checkTopics compares with what was to be sent. build has sorted its.
func checkTopics(t *testing.T, version int16, got *kmsg.ProduceRequest, its []item) {
	t.Helper()
	i := 0
	if len(got.Topics) != 3 {
		t.Fatalf("%d topics, want 3", len(got.Topics))
	}
	for _, topic := range got.Topics {
		for _, p := range topic.Partitions {
			it := its[i]
			i++
			if version >= produceTopicID && topic.TopicID != it.stream.topic.id || version < produceTopicID && topic.Topic != it.stream.topic.name {
				t.Fatalf("item %d is in topic %q %x", i, topic.Topic, topic.TopicID)
			}
			if p.Partition != it.stream.partition {
				t.Fatalf("partition %d, want %d", p.Partition, it.stream.partition)
			}
			want := append(append([]byte(nil), it.entry.Header[:]...), it.entry.Batch.Payload()...)
			if !bytes.Equal(p.Records, want) {
				t.Fatalf("%s/%d: the batch is not header and payload", it.stream.topic.name, p.Partition)
			}
			if crc := crc32.Checksum(want[21:], crc32.MakeTable(crc32.Castagnoli)); binary.BigEndian.Uint32(want[17:]) != crc {
				t.Fatal("the patched header's checksum is wrong")
			}
		}
	}
	if i != len(its) {
		t.Fatalf("%d batches, want %d", i, len(its))
	}
}

func TestRequestAllocations(t *testing.T) {
	for version := int16(firstProduce); version <= lastProduce; version++ {
		var r request
		its := items(t)
		if n := testing.AllocsPerRun(50, func() { r.build(version, its, time.Second) }); n != 0 {
			t.Errorf("v%d: %v allocations per request", version, n)
		}
	}
}
