package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	requestTopics  = 200              // topics in one admin request
	requestTimeout = 30 * time.Second // for the broker to carry it out
	refusedRounds  = 16               // tries of one creation, each without the configs refused before
)

// create makes up to requestTopics topics.
func (t *Topics) create(ctx context.Context, topics []*Topic, defaults defaults) error {
	names := make([]string, len(topics))
	for i, topic := range topics {
		names[i] = topic.Source
	}
	described, err := describeConfigs(ctx, t.Source, names)
	if err != nil {
		return err
	}
	configs := make(map[string]map[string]string) // by target name
	pending := make(map[string]*Topic)
	for _, topic := range topics {
		d := described[topic.Source]
		if d.err != nil {
			// Without its configs a compacted topic would be made to expire.
			topic.Err = fmt.Errorf("read configs of source topic %s: %w: allow DESCRIBE_CONFIGS on it, or create %s on the target by hand", topic.Source, d.err, topic.Target)
			continue
		}
		configs[topic.Target] = d.creation(defaults)
		pending[topic.Target] = topic
	}
	for range refusedRounds {
		if len(pending) == 0 {
			return nil
		}
		if err := t.createOnce(ctx, pending, configs); err != nil {
			return err
		}
	}
	for _, topic := range pending {
		topic.Err = fmt.Errorf("create topic %s: %d tries, and still a config is refused; dropped so far: %v", topic.Target, refusedRounds, topic.Dropped)
	}
	return nil
}

// createOnce sends one request and leaves in pending what is worth another,
// with fewer configs.
func (t *Topics) createOnce(ctx context.Context, pending map[string]*Topic, configs map[string]map[string]string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(requestTimeout.Milliseconds())
	for _, name := range sortedKeys(pending) {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, pending[name].SourcePartitions, -1
		for _, key := range sortedKeys(configs[name]) {
			rc := kmsg.NewCreateTopicsRequestTopicConfig()
			rc.Name, rc.Value = key, kmsg.StringPtr(configs[name][key])
			rt.Configs = append(rt.Configs, rc)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, t.Target)
	if err != nil {
		return fmt.Errorf("create %d topics: %w", len(pending), err)
	}
	answers := make(map[string]kmsg.CreateTopicsResponseTopic, len(resp.Topics))
	for _, a := range resp.Topics {
		answers[a.Topic] = a
	}
	for name, topic := range pending {
		a, ok := answers[name]
		if !ok {
			topic.Err = fmt.Errorf("create topic %s: the broker did not answer for it", name)
			delete(pending, name)
			continue
		}
		err, text := kerr.ErrorForCode(a.ErrorCode), message(a.ErrorMessage)
		if errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.PolicyViolation) {
			if dropped := dropNamed(configs[name], text); len(dropped) > 0 {
				topic.Dropped = append(topic.Dropped, dropped...)
				continue
			}
		}
		delete(pending, name)
		switch {
		case errors.Is(err, kerr.TopicAlreadyExists): // another instance was faster; the next Sync sees its size
		case err != nil:
			topic.Err = fmt.Errorf("create topic %s with %d partitions: %w%s%s", name, topic.SourcePartitions, err, text, cure(err, "CREATE", name))
		default:
			t.Log.Info("target topic created", "topic", topic.Source, "target", name, "partitions", topic.SourcePartitions, "configs", configs[name])
			if len(topic.Dropped) > 0 {
				t.Log.Warn("target refused topic configs", "topic", topic.Source, "target", name, "configs", topic.Dropped)
			}
		}
	}
	return nil
}

// grow raises the partition counts of up to requestTopics topics to their
// sources'.
func (t *Topics) grow(ctx context.Context, topics []*Topic) error {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(requestTimeout.Milliseconds())
	for _, topic := range topics {
		rt := kmsg.NewCreatePartitionsRequestTopic()
		rt.Topic, rt.Count = topic.Target, topic.SourcePartitions
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, t.Target)
	if err != nil {
		return fmt.Errorf("grow %d topics: %w", len(topics), err)
	}
	answers := make(map[string]kmsg.CreatePartitionsResponseTopic, len(resp.Topics))
	for _, a := range resp.Topics {
		answers[a.Topic] = a
	}
	for _, topic := range topics {
		a, ok := answers[topic.Target]
		err := kerr.ErrorForCode(a.ErrorCode)
		switch {
		case !ok:
			topic.Err = fmt.Errorf("grow topic %s: the broker did not answer for it", topic.Target)
		case err != nil:
			topic.Err = fmt.Errorf("grow topic %s from %d to %d partitions: %w%s%s", topic.Target, topic.TargetPartitions, topic.SourcePartitions, err, message(a.ErrorMessage), cure(err, "ALTER", topic.Target))
		default:
			t.Log.Info("target topic grown", "topic", topic.Source, "target", topic.Target, "from", topic.TargetPartitions, "to", topic.SourcePartitions)
		}
	}
	return nil
}

// cure says what an operator can do about a refusal.
func cure(err error, operation, topic string) string {
	if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
		return fmt.Sprintf(": allow %s on target topic %s, or do it by hand", operation, topic)
	}
	return ""
}
