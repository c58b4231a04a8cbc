package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What Offsets can ask for beside a time in milliseconds (KIP-79).
const (
	Latest   int64 = -1 // the high watermark, with read_committed the last stable offset
	Earliest int64 = -2 // the log start
)

// SoundOffset says whether an offset that a peer names can be one: not negative, and not so large that counting on from it overflows.
func SoundOffset(offset int64) bool { return offset >= 0 && offset < 1<<62 }

// Place is one partition of a topic.
type Place struct {
	Topic     string
	Partition int32
}

func (p Place) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Partition) }

// Offset is what a partition's leader says. Err is the partition's own: one that is forbidden, or without a leader, hides
// no other.
type Offset struct {
	Offset int64
	Err    error
}

// Offsets asks the leaders of places for one kind of offset: Latest, Earliest, or that of the first record at or after a
// time in milliseconds, which is the end where no record is that late. Every place has an answer. Requests go to the
// leaders side by side, one to each.
func (c *Cluster) Offsets(ctx context.Context, places []Place, at int64, committed bool) map[Place]Offset {
	found := make(map[Place]Offset, len(places))
	c.offsets(ctx, places, at, committed, found)
	if at < 0 {
		return found
	}
	var late []Place
	for p, o := range found {
		if o.Err == nil && o.Offset < 0 {
			late = append(late, p)
		}
	}
	if len(late) > 0 {
		c.offsets(ctx, late, Latest, committed, found)
	}
	return found
}

func (c *Cluster) offsets(ctx context.Context, places []Place, at int64, committed bool, found map[Place]Offset) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	if committed {
		req.IsolationLevel = 1
	}
	topics := make(map[string]int)
	silence := errors.New("no answer")
	for _, p := range places {
		i, ok := topics[p.Topic]
		if !ok {
			i = len(req.Topics)
			topics[p.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = p.Topic
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p.Partition, at
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
		found[p] = Offset{Offset: -1, Err: fmt.Errorf("ask %s for an offset of %s/%d: %w", c.cfg.Alias, p.Topic, p.Partition, silence)}
	}
	for _, shard := range c.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			part, ok := shard.Req.(*kmsg.ListOffsetsRequest)
			if !ok {
				continue
			}
			for _, t := range part.Topics {
				for _, p := range t.Partitions {
					found[Place{t.Topic, p.Partition}] = Offset{Offset: -1, Err: c.offsetError(t.Topic, p.Partition, shard.Err)}
				}
			}
			continue
		}
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if !ok {
			continue
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				place := Place{t.Topic, p.Partition}
				if _, asked := found[place]; !asked {
					continue
				}
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					found[place] = Offset{Offset: -1, Err: c.offsetError(t.Topic, p.Partition, err)}
					continue
				}
				// Version 0 has a list instead; no broker that Fetch 4 and Produce 3 speak to is that old.
				if !SoundOffset(p.Offset) && (p.Offset != -1 || at < 0) {
					found[place] = Offset{Offset: -1, Err: c.offsetError(t.Topic, p.Partition, fmt.Errorf("%w: offset %d", ErrProtocol, p.Offset))}
					continue
				}
				found[place] = Offset{Offset: p.Offset}
			}
		}
	}
}

func (c *Cluster) offsetError(topic string, partition int32, err error) error {
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		err = fmt.Errorf("%w: grant DESCRIBE on the topic to kferry's principal on %s", err, c.cfg.Alias)
	}
	return fmt.Errorf("ask %s for an offset of %s/%d: %w", c.cfg.Alias, topic, partition, err)
}
