package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
)

// settings are configs of a topic as they take effect; explicit are those set on the topic itself.
type settings struct {
	values   map[string]string
	explicit map[string]bool
	err      error
}

func (s settings) get(key string) string { return s.values[key] }

// number gives a numeric setting; false where it is not shown.
func (s settings) number(key string) (int64, bool) {
	n, err := strconv.ParseInt(s.values[key], 10, 64)
	return n, err == nil
}

// inherited are the topic settings that check looks at, and the broker settings that stand for them.
var inherited = map[string]string{
	"cleanup.policy":                      "log.cleanup.policy",
	"compression.type":                    "compression.type",
	"max.message.bytes":                   "message.max.bytes",
	"message.format.version":              "log.message.format.version",
	"message.timestamp.after.max.ms":      "log.message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms":     "log.message.timestamp.before.max.ms",
	"message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
	"message.timestamp.type":              "log.message.timestamp.type",
	"min.insync.replicas":                 "min.insync.replicas",
	"retention.bytes":                     "log.retention.bytes",
	"retention.ms":                        "log.retention.ms",
	"segment.bytes":                       "log.segment.bytes",
}

// notCopied are settings that a copy does not take from its source (package control); fitted are those that a new copy is
// created with so that batches pass.
var (
	notCopied = []string{"message.format.version", "message.timestamp.type", "min.insync.replicas"}
	fitted    = []string{"compression.type", "max.message.bytes"}
)

// created foretells the settings of a topic that kferry would make.
func created(source settings, broker map[string]string) settings {
	s := settings{values: make(map[string]string), explicit: source.explicit}
	for key, from := range inherited {
		value, ok := broker[from]
		switch {
		case slices.Contains(notCopied, key):
		case source.explicit[key], slices.Contains(fitted, key):
			value, ok = source.values[key]
		}
		if ok {
			s.values[key] = value
		}
	}
	return s
}

// describeSettings reads the settings of topics.
func describeSettings(ctx context.Context, cl *kgo.Client, topics []string) (map[string]settings, error) {
	all := make(map[string]settings, len(topics))
	for chunk := range slices.Chunk(topics, checkedTopics) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, name := range chunk {
			rr := kmsg.NewDescribeConfigsRequestResource()
			rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, name
			req.Resources = append(req.Resources, rr)
			all[name] = settings{err: errors.New("the broker did not answer for it")}
		}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return nil, fmt.Errorf("describe configs of %d topics: %w", len(chunk), err)
		}
		for _, r := range resp.Resources {
			s := settings{values: make(map[string]string), explicit: make(map[string]bool), err: kerr.ErrorForCode(r.ErrorCode)}
			for _, e := range r.Configs {
				if e.Value != nil {
					s.values[e.Name], s.explicit[e.Name] = *e.Value, e.Source == kmsg.ConfigSourceDynamicTopicConfig
				}
			}
			all[r.ResourceName] = s
		}
	}
	return all, nil
}

// describeBroker reads what new topics on a cluster inherit, from one broker; empty where we may not see it.
func describeBroker(ctx context.Context, cl *kgo.Client, broker int32) (map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker))
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("describe configs of broker %d: %w", broker, err)
	}
	all := make(map[string]string)
	for _, r := range resp.Resources {
		for _, e := range r.Configs {
			if e.Value != nil {
				all[e.Name] = *e.Value
			}
		}
	}
	// log.retention.ms is null where one of its elders rules (KafkaConfig.scala).
	for _, elder := range []struct {
		name string
		unit time.Duration
	}{{"log.retention.minutes", time.Minute}, {"log.retention.hours", time.Hour}} {
		if _, ok := all["log.retention.ms"]; ok {
			break
		}
		if n, err := strconv.ParseInt(all[elder.name], 10, 64); err == nil {
			all["log.retention.ms"] = strconv.FormatInt(max(n*elder.unit.Milliseconds(), -1), 10)
		}
	}
	return all, nil
}

// times are the oldest and the newest record that a link would copy of a topic, 0 where not known.
type times struct{ oldest, newest int64 } // ms

// dataTimes asks for the times of what is still to be copied. A link that has run before has most of it behind: nothing is
// asked then. What the source does not answer is left out.
func (c *linkCheck) dataTimes(ctx context.Context) map[string]times {
	all := make(map[string]times)
	start := c.link.cfg.Start
	if c.started || start.Kind == StartLatest || len(c.topics) == 0 {
		return all
	}
	var names []string
	for _, t := range c.topics {
		names = append(names, t.Source)
	}
	from := int64(0)
	if start.Kind == StartTime {
		from = start.Time.UnixMilli()
	}
	admin := c.link.from.Admin()
	if oldest, err := admin.ListOffsetsAfterMilli(ctx, from, names...); err == nil {
		oldest.Each(func(o kadm.ListedOffset) {
			if t := all[o.Topic]; o.Err == nil && o.Timestamp > 0 && (t.oldest == 0 || o.Timestamp < t.oldest) {
				t.oldest = o.Timestamp
				all[o.Topic] = t
			}
		})
	}
	if newest, err := admin.ListMaxTimestampOffsets(ctx, names...); err == nil { // KIP-734: 3.0
		newest.Each(func(o kadm.ListedOffset) {
			if t := all[o.Topic]; o.Err == nil && o.Timestamp > t.newest {
				t.newest = o.Timestamp
				all[o.Topic] = t
			}
		})
	}
	return all
}

// settings compares the topics' settings on both sides.
func (c *linkCheck) settings(ctx context.Context) error {
	l := c.link
	var sources, targets []string
	for _, t := range c.topics {
		sources = append(sources, t.Source)
		if t.TargetPartitions > 0 {
			targets = append(targets, t.Target)
		}
	}
	onSource, err := describeSettings(ctx, l.from.Client(), sources)
	if err != nil {
		return fmt.Errorf("ask %s: %w", l.cfg.From, err)
	}
	onTarget, err := describeSettings(ctx, l.to.Client(), targets)
	if err != nil {
		return fmt.Errorf("ask %s: %w", l.cfg.To, err)
	}
	broker := map[string]string{}
	if len(c.access.brokers) > 0 {
		if broker, err = describeBroker(ctx, l.to.Client(), c.access.brokers[0]); err != nil {
			return fmt.Errorf("ask %s: %w", l.cfg.To, err)
		}
	}
	data := c.dataTimes(ctx)
	for _, t := range c.topics {
		c.compare(t, onSource[t.Source], onTarget[t.Target], broker, data[t.Source])
	}
	return nil
}

// compare looks at one topic.
func (c *linkCheck) compare(t control.Topic, source, target settings, broker map[string]string, data times) {
	from, to := c.link.cfg.From, c.link.cfg.To
	grant := func(on string) string {
		return fmt.Sprintf("grant DESCRIBE_CONFIGS on the topic to kferry's principal on %s", on)
	}
	isNew := t.TargetPartitions == 0
	switch {
	case source.err != nil && isNew:
		c.add(LevelFail, t.Source, grant(from)+", or create it on the target by hand", "its configs cannot be read on %s, and without them no copy is created: %v", from, source.err)
		return
	case source.err != nil:
		c.add(LevelWarn, t.Source, grant(from), "its configs cannot be read on %s, so they were not compared: %v", from, source.err)
		return
	case !isNew && target.err != nil:
		c.add(LevelWarn, t.Source, grant(to), "the configs of %s cannot be read on %s, so they were not compared: %v", t.Target, to, target.err)
		return
	}
	r := topicRules{now: c.now, source: source, target: target, access: c.access.target[t.Target], data: data, memory: c.link.p.cfg.MemoryBytes}
	if isNew {
		r.target = created(source, broker)
		r.access = topicAccess{}
		if n, err := strconv.Atoi(broker["default.replication.factor"]); err == nil {
			r.access.replicas, r.access.insync = n, min(n, len(c.access.brokers))
			if n > len(c.access.brokers) {
				c.add(LevelFail, t.Source, cluster.Cure(kerr.InvalidReplicationFactor.Code),
					"it cannot be created: %s has default.replication.factor=%d and %s", to, n, count(len(c.access.brokers), "broker"))
			}
		}
	}
	if ms, err := strconv.ParseInt(broker["producer.id.expiration.ms"], 10, 64); err == nil {
		r.expiration = ms
	}
	for _, f := range r.findings() {
		c.add(f.Level, t.Source, f.Cure, "%s", f.Text)
	}
}
