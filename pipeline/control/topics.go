package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	visibleTimeout = 30 * time.Second // for what was made to show, with leaders
	visiblePoll    = 100 * time.Millisecond
)

// ErrNotForwarded marks a topic that the filter takes and the naming does not,
// because it came from the target.
var ErrNotForwarded = errors.New("not forwarded")

// filter and namer are what a link's partitioner.Filter and Namer do.
type filter interface {
	Accepts(topic string) (bool, error)
}

type namer interface {
	Target(topic string) (string, bool)
	Refusal(topic string) string // why Target is false
	Loops(topic string) bool     // it is false because the topic came from the target
}

// Topic is one source topic of a link, and what became of it on the target. Ids
// are zero where a cluster has none. Err says why it is not, or not fully, as it
// should be; every topic has its own, so one that is forbidden holds up no other.
type Topic struct {
	Source, Target     string // Target is empty where Err is older than the naming, or ErrNotForwarded
	SourceID, TargetID [16]byte
	SourcePartitions   int32
	TargetPartitions   int32    // 0 while it is missing
	Dropped            []string // configs that the target refused at creation
	Err                error
}

// Topics finds a link's topics and makes them on the target.
type Topics struct {
	Source, Target *kgo.Client
	Filter         filter
	Namer          namer
	Log            *slog.Logger
}

// Plan reads both clusters and changes nothing. It returns every source topic
// that the filter takes, or cannot decide on, by name. The error is that of a
// cluster that did not answer.
func (t *Topics) Plan(ctx context.Context) ([]Topic, error) {
	source, err := describe(ctx, t.Source, nil)
	if err != nil {
		return nil, fmt.Errorf("list source topics: %w", err)
	}
	var topics []Topic
	for _, name := range sortedKeys(source) {
		ok, err := t.Filter.Accepts(name)
		if ok || err != nil {
			d := source[name]
			topics = append(topics, Topic{Source: name, SourceID: d.id, SourcePartitions: d.partitions, Err: cmp.Or(err, d.err)})
		}
	}
	var names []string
	first := make(map[string]*Topic) // by target name
	for i := range topics {
		topic := &topics[i]
		if topic.Err != nil {
			continue
		}
		target, ok := t.Namer.Target(topic.Source)
		if !ok {
			topic.Err = errors.New(t.Namer.Refusal(topic.Source))
			if t.Namer.Loops(topic.Source) {
				topic.Err = fmt.Errorf("%w: %w", ErrNotForwarded, topic.Err)
			}
			continue
		}
		topic.Target = target
		if other := first[target]; other != nil {
			err := fmt.Errorf("%s and %s would both be copied to %s: rename one of them", other.Source, topic.Source, target)
			other.Err, topic.Err = err, err
			continue
		}
		first[target] = topic
		names = append(names, target)
	}
	if len(names) == 0 {
		return topics, nil
	}
	onTarget, err := describe(ctx, t.Target, names)
	if err != nil {
		return nil, fmt.Errorf("list target topics: %w", err)
	}
	for i := range topics {
		topic := &topics[i]
		d, ok := onTarget[topic.Target]
		switch {
		case !ok || errors.Is(d.err, kerr.UnknownTopicOrPartition):
		case d.err != nil && topic.Err == nil:
			topic.Err = fmt.Errorf("describe target topic %s: %w%s", topic.Target, d.err, cure(d.err, "DESCRIBE", topic.Target))
		default:
			topic.TargetID, topic.TargetPartitions = d.id, d.partitions
		}
	}
	return topics, nil
}

// Sync makes the target follow: it creates what is missing, with the source's
// partition count and configs and the target's replication factor, grows what
// has fewer partitions than its source, and waits until that shows with
// leaders. It deletes nothing. What fails for one topic stands in its Err and is
// tried again by the next Sync; the error is as for Plan.
func (t *Topics) Sync(ctx context.Context) ([]Topic, error) {
	topics, err := t.Plan(ctx)
	if err != nil {
		return nil, err
	}
	var missing, short, made []*Topic
	for i := range topics {
		switch topic := &topics[i]; {
		case topic.Err != nil:
		case topic.TargetPartitions == 0:
			missing = append(missing, topic)
		case topic.TargetPartitions < topic.SourcePartitions:
			short = append(short, topic)
		}
	}
	if len(missing) > 0 {
		defaults, err := brokerDefaults(ctx, t.Target)
		if err != nil {
			return topics, err
		}
		for chunk := range slices.Chunk(missing, requestTopics) {
			if err := t.create(ctx, chunk, defaults); err != nil {
				return topics, err
			}
		}
	}
	for chunk := range slices.Chunk(short, requestTopics) {
		if err := t.grow(ctx, chunk); err != nil {
			return topics, err
		}
	}
	for _, topic := range append(missing, short...) {
		if topic.Err == nil {
			made = append(made, topic)
		}
	}
	return topics, t.await(ctx, made)
}

// await waits until the target shows every topic with a leader for each
// partition, and notes what it shows.
func (t *Topics) await(ctx context.Context, topics []*Topic) error {
	deadline := time.Now().Add(visibleTimeout)
	for len(topics) > 0 {
		names := make([]string, len(topics))
		for i, topic := range topics {
			names[i] = topic.Target
		}
		shown, err := describe(ctx, t.Target, names)
		if err != nil {
			return fmt.Errorf("list target topics: %w", err)
		}
		topics = slices.DeleteFunc(topics, func(topic *Topic) bool {
			d := shown[topic.Target]
			if d.err != nil || d.partitions < topic.SourcePartitions || d.leaders < d.partitions {
				if time.Now().After(deadline) {
					topic.Err = fmt.Errorf("wait for topic %s: %d of %d partitions have a leader after %v", topic.Target, d.leaders, topic.SourcePartitions, visibleTimeout)
				}
				return topic.Err != nil
			}
			topic.TargetID, topic.TargetPartitions = d.id, d.partitions
			return true
		})
		if len(topics) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d topics: %w", len(topics), context.Cause(ctx))
		case <-time.After(visiblePoll):
		}
	}
	return nil
}
