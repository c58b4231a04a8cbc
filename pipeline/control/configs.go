package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// excluded are the topic configs that are not copied: MirrorMaker 2's
// config.properties.exclude of 4.3.1 (MirrorSourceConfig,
// DefaultConfigPropertyFilter).
var excluded = [...]string{
	"follower.replication.throttled.replicas",
	"leader.replication.throttled.replicas",
	"message.timestamp.difference.max.ms",
	"message.timestamp.type",
	"unclean.leader.election.enable",
	"min.insync.replicas",
	"log.message.timestamp.before.max.ms",
	"log.message.timestamp.after.max.ms",

	// Not among MirrorMaker 2's. Brokers before 4.0 would take an old format, which refuses producer ids (KIP-724); later ones refuse the key.
	"message.format.version",
	"message.downconversion.enable",
}

const (
	cleanupPolicy   = "cleanup.policy"
	compressionType = "compression.type"
	maxMessageBytes = "max.message.bytes" // a topic's; "message.max.bytes" is the broker's
)

// topicConfigs are a source topic's configs.
type topicConfigs struct {
	explicit map[string]string // set on the topic itself
	maxBytes int64             // effective max.message.bytes; 0 if not shown
	err      error
}

// defaults are what a new topic on the target would get; the zero value, where
// they are not shown to us, is never taken for one that fits.
type defaults struct {
	compression string
	maxBytes    int64
}

// creation returns the configs to create the copy with: what is set on the
// source topic less the excluded, and what it takes for batches to pass as they
// are. A broker default of another compression.type would have every batch
// recompressed, a smaller limit would refuse the largest.
func (c topicConfigs) creation(target defaults) map[string]string {
	configs := maps.Clone(c.explicit)
	maps.DeleteFunc(configs, func(key, _ string) bool { return slices.Contains(excluded[:], key) })
	if _, ok := configs[compressionType]; !ok && target.compression != "producer" {
		configs[compressionType] = "producer"
	}
	if _, ok := configs[maxMessageBytes]; !ok && c.maxBytes > target.maxBytes {
		configs[maxMessageBytes] = strconv.FormatInt(c.maxBytes, 10)
	}
	return configs
}

// describeConfigs reads the configs of up to requestTopics topics.
func describeConfigs(ctx context.Context, cl *kgo.Client, topics []string) (map[string]topicConfigs, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, name := range topics {
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kmsg.ConfigResourceTypeTopic, name
		req.Resources = append(req.Resources, rr)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("describe configs of %d topics: %w", len(topics), err)
	}
	all := make(map[string]topicConfigs, len(topics))
	for _, name := range topics {
		all[name] = topicConfigs{err: errors.New("the broker did not answer for it")}
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			all[r.ResourceName] = topicConfigs{err: err}
			continue
		}
		c := topicConfigs{explicit: make(map[string]string)}
		for _, e := range r.Configs {
			if e.Value == nil {
				continue
			}
			if e.Source == kmsg.ConfigSourceDynamicTopicConfig {
				c.explicit[e.Name] = *e.Value
			}
			if e.Name == maxMessageBytes {
				c.maxBytes, _ = strconv.ParseInt(*e.Value, 10, 64)
			}
		}
		all[r.ResourceName] = c
	}
	return all, nil
}

// brokerDefaults asks one broker for what a topic inherits. Where we may not
// see that, the zero defaults let creation name everything itself.
func brokerDefaults(ctx context.Context, cl *kgo.Client) (defaults, error) {
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	brokers, err := meta.RequestWith(ctx, cl)
	if err != nil {
		return defaults{}, fmt.Errorf("list brokers: %w", err)
	}
	if len(brokers.Brokers) == 0 {
		return defaults{}, errors.New("list brokers: the cluster named none")
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType = kmsg.ConfigResourceTypeBroker
	rr.ResourceName = strconv.Itoa(int(brokers.Brokers[0].NodeID))
	rr.ConfigNames = []string{compressionType, "message.max.bytes"}
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return defaults{}, fmt.Errorf("describe configs of broker %s: %w", rr.ResourceName, err)
	}
	var d defaults
	for _, r := range resp.Resources { // empty where we may not see them
		for _, e := range r.Configs {
			switch {
			case e.Value == nil:
			case e.Name == compressionType:
				d.compression = *e.Value
			case e.Name == "message.max.bytes":
				d.maxBytes, _ = strconv.ParseInt(*e.Value, 10, 64)
			}
		}
	}
	return d, nil
}

// dropNamed removes from configs, and returns, the keys that a refusal names.
// cleanup.policy stays: a copy with another one would lose other records than
// its source.
func dropNamed(configs map[string]string, refusal string) (dropped []string) {
	for _, key := range sortedKeys(configs) {
		if key != cleanupPolicy && names(refusal, key) {
			delete(configs, key)
			dropped = append(dropped, key)
		}
	}
	return dropped
}

// names says whether text names the config key: "delete.retention.ms" does not
// name "retention.ms", the end of a sentence may follow it.
func names(text, key string) bool {
	for rest := text; ; {
		i := strings.Index(rest, key)
		if i < 0 {
			return false
		}
		at := len(text) - len(rest) + i
		after := text[at+len(key):]
		before := at == 0 || !keyChar(text[at-1])
		if before && (after == "" || !keyChar(after[0]) || after[0] == '.' && (len(after) == 1 || !keyChar(after[1]))) {
			return true
		}
		rest = text[at+1:]
	}
}

func keyChar(c byte) bool {
	return c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
