package kafkatest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	rawFetchBytes = 16 << 20 // of one answer; a larger batch still comes whole
	// The last version of Fetch that names topics by their names.
	fetchByName = 12
	fetchKey    = int16(kmsg.Fetch)
)

// Where a batch's fields lie: the Kafka protocol's record batch, version 2; the first three are also those of the older
// message sets.
const (
	lengthAt          = 8  // int32: the bytes behind it
	magicAt           = 16 // int8
	lastOffsetDeltaAt = 23 // int32, version 2 only
	oldestBatchBytes  = 17
)

// RawBatches returns all batches of a partition as they lie in its leader's log, control batches and aborted ones
// included, from the log's start to its high watermark. They are split by their length fields and not otherwise read;
// what lies behind byte 61 of a version 2 batch is its record section. Options may add TLS or SASL.
func RawBatches(ctx context.Context, bootstrap []string, topic string, partition int32, opts ...kgo.Opt) ([][]byte, error) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(fetchKey, fetchByName)
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(bootstrap...), kgo.MaxVersions(versions)}, opts...)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	next, end, leader, err := bounds(ctx, client, topic, partition)
	if err != nil {
		return nil, fmt.Errorf("find the bounds of %s/%d: %w", topic, partition, err)
	}
	var batches [][]byte
	for next < end {
		p, err := fetchRaw(ctx, client.Broker(int(leader)), topic, partition, next)
		if err != nil {
			return nil, fmt.Errorf("fetch %s/%d at %d: %w", topic, partition, next, err)
		}
		got := len(batches)
		for b := p.RecordBatches; len(b) >= oldestBatchBytes; {
			size := 12 + int(int32(binary.BigEndian.Uint32(b[lengthAt:])))
			if size < oldestBatchBytes {
				return nil, fmt.Errorf("fetch %s/%d at %d: a batch of %d bytes", topic, partition, next, size)
			}
			if len(b) < size { // cut off by the answer's limit
				break
			}
			batches = append(batches, b[:size:size])
			next = lastOffset(b) + 1
			b = b[size:]
		}
		if len(batches) == got {
			return nil, fmt.Errorf("fetch %s/%d at %d: no batch below the high watermark %d", topic, partition, next, end)
		}
	}
	return batches, nil
}

func lastOffset(b []byte) int64 {
	offset := int64(binary.BigEndian.Uint64(b))
	if b[magicAt] < 2 { // one message, or a wrapper, which has its last message's offset
		return offset
	}
	return offset + int64(int32(binary.BigEndian.Uint32(b[lastOffsetDeltaAt:])))
}

// bounds are a partition's log start, its high watermark and its leader. The client is fresh, so that kadm's cache has
// nothing old to tell.
func bounds(ctx context.Context, client *kgo.Client, topic string, partition int32) (start, end int64, leader int32, err error) {
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return 0, 0, 0, err
	}
	p, ok := topics[topic].Partitions[partition]
	if !ok {
		return 0, 0, 0, errors.Join(kerr.UnknownTopicOrPartition, topics[topic].Err)
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return 0, 0, 0, err
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, 0, 0, err
	}
	s, e := starts[topic][partition], ends[topic][partition]
	return s.Offset, e.Offset, p.Leader, errors.Join(p.Err, s.Err, e.Err)
}

func fetchRaw(ctx context.Context, leader *kgo.Broker, topic string, partition int32, at int64) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, at, rawFetchBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	ask := kmsg.NewPtrFetchRequest()
	ask.MaxBytes, ask.Topics = rawFetchBytes, append(ask.Topics, t)
	answer, err := ask.RequestWith(ctx, leader)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return nil, err
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("an answer for %d topics, want one partition", len(answer.Topics))
	}
	got := &answer.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return nil, err
	}
	return got, nil
}
