package control

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// NotEmpty returns, sorted, the target topics among those planned that hold
// records: a link that starts for the first time must not copy onto them
// unasked.
func NotEmpty(ctx context.Context, target *kgo.Client, topics []Topic) ([]string, error) {
	var found []string
	for chunk := range slices.Chunk(topics, requestTopics) {
		starts, err := listOffsets(ctx, target, chunk, -2)
		if err != nil {
			return nil, err
		}
		ends, err := listOffsets(ctx, target, chunk, -1)
		if err != nil {
			return nil, err
		}
		for _, topic := range chunk {
			if !slices.Equal(starts[topic.Target], ends[topic.Target]) {
				found = append(found, topic.Target)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// listOffsets lists one offset (-1 latest, -2 earliest: KIP-79) of every
// partition of the topics that exist on the target, by topic and partition.
func listOffsets(ctx context.Context, cl *kgo.Client, topics []Topic, at int64) (map[string][]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	offsets := make(map[string][]int64)
	for _, topic := range topics {
		if topic.TargetPartitions == 0 || offsets[topic.Target] != nil {
			continue
		}
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic.Target
		for p := range topic.TargetPartitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, at
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		offsets[topic.Target] = slices.Repeat([]int64{-1}, int(topic.TargetPartitions))
	}
	if len(req.Topics) == 0 {
		return offsets, nil
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("list offsets of %d target topics: %w", len(req.Topics), err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if errors.Is(err, kerr.TopicAuthorizationFailed) {
				err = fmt.Errorf("%w: allow DESCRIBE on target topic %s", err, t.Topic)
			}
			if err != nil {
				return nil, fmt.Errorf("list offsets of %s/%d: %w", t.Topic, p.Partition, err)
			}
			if known := offsets[t.Topic]; p.Partition >= 0 && int(p.Partition) < len(known) {
				known[p.Partition] = p.Offset
			}
		}
	}
	for name, partitions := range offsets {
		if p := slices.Index(partitions, -1); p >= 0 {
			return nil, fmt.Errorf("list offsets of %s/%d: no answer", name, p)
		}
	}
	return offsets, nil
}
