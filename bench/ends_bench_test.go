package bench

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The ends have to be faster than what stands between them: on two cores a forwarder moves 1 to 2 GB/s.

func requestFrame(r kmsg.Request) []byte {
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(r.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(r.GetVersion()))
	b = append(b, 0, 0, 0, 1, 0xff, 0xff) // correlation id 1, no client id
	if r.IsFlexible() {
		b = append(b, 0)
	}
	b = r.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func dialBench(b *testing.B, addr string) net.Conn {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func BenchmarkSourceFetch(b *testing.B) {
	s, err := NewSource(b.Context(), SourceConfig{Topic: testTopic, Partitions: 1, Batches: 1 << 30, Workload: largeBatches})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionEpoch, req.MaxBytes, req.MaxWaitMillis = 12, -1, 1<<20, 1000
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = testTopic
	part := kmsg.NewFetchRequestTopicPartition()
	part.PartitionMaxBytes = 1 << 20
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	frame, conn := requestFrame(req), dialBench(b, s.Addr())
	b.SetBytes(1 << 20)
	var answer []byte
	for b.Loop() {
		if _, err := conn.Write(frame); err != nil {
			b.Fatal(err)
		}
		if answer, err = readFrame(conn, answer); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTargetProduce(b *testing.B) {
	target, err := NewTarget(TargetConfig{Topics: map[string]int32{testTopic: 16}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(target.Close)
	ring, err := largeBatches.Build(testNow)
	if err != nil {
		b.Fatal(err)
	}
	batch := slices.Clone(ring.Batches[0])
	binary.BigEndian.PutUint64(batch[43:], ^uint64(0)) // no producer id
	binary.BigEndian.PutUint16(batch[51:], ^uint16(0))
	binary.BigEndian.PutUint32(batch[53:], ^uint32(0))
	seal(batch)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, -1
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = testTopic
	for p := range int32(16) {
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = p, batch
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	frame, conn := requestFrame(req), dialBench(b, target.Addr())
	b.SetBytes(int64(len(frame)))
	var answer []byte
	sent := 0
	for b.Loop() {
		if _, err := conn.Write(frame); err != nil {
			b.Fatal(err)
		}
		if answer, err = readFrame(conn, answer); err != nil {
			b.Fatal(err)
		}
		sent += 16
	}
	if got := target.Tally(); got.Batches != int64(sent) {
		b.Fatalf("%d batches taken of %d: %s", got.Batches, sent, got.Refusal)
	}
}
