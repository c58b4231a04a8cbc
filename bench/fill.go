package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/kafkatest"
)

// hosted waits until the leaders answer for all partitions of a topic that was just created.
func hosted(ctx context.Context, adm *kadm.Client, partitions int32) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(mm2ArrivalPoll)
	defer tick.Stop()
	for {
		ends, err := adm.ListEndOffsets(ctx, forwardTopic)
		if err == nil {
			err = ends.Error()
		}
		if err == nil && len(ends[forwardTopic]) == int(partitions) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the partitions of %s: %w", forwardTopic, errors.Join(context.Cause(ctx), err))
		}
	}
}

// fill creates the topic and produces the workload's own batches into it, without a producer id: at least so many records.
func fill(ctx context.Context, k *kafkatest.Kafka, w Workload, partitions int32, records int64) (int64, error) {
	client, err := k.Client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	created, err := adm.CreateTopic(ctx, partitions, 1, nil, forwardTopic)
	if err != nil {
		return 0, fmt.Errorf("create %s: %w", forwardTopic, err)
	}
	if err := hosted(ctx, adm, partitions); err != nil {
		return 0, err
	}
	ring, err := w.Build(time.Now())
	if err != nil {
		return 0, err
	}
	for _, b := range ring.Batches {
		for i := 43; i < 57; i++ { // producer id, epoch and sequence -1
			b[i] = 0xff
		}
		binary.BigEndian.PutUint64(b, 0)
		seal(b)
	}
	rounds := int(records / ring.Records / int64(partitions))
	for round := range rounds {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 30_000
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = forwardTopic, created.ID
		for p := range partitions {
			part := kmsg.NewProduceRequestTopicPartition()
			part.Partition, part.Records = p, ring.Batches[(round*int(partitions)+int(p))%len(ring.Batches)]
			topic.Partitions = append(topic.Partitions, part)
		}
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return 0, fmt.Errorf("fill %s: %w", forwardTopic, err)
		}
		for _, t := range resp.Topics {
			for _, part := range t.Partitions {
				if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
					return 0, fmt.Errorf("fill %s/%d: %w", forwardTopic, part.Partition, err)
				}
			}
		}
	}
	return int64(rounds) * int64(partitions) * ring.Records, nil
}
