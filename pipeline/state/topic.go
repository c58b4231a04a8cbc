package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topicPrefix = "kferry-state."
	topicSuffix = ".internal"

	createTimeout = 30 * time.Second // for the controller, then again for the leaders to show
)

// ErrNoTopic says that there is no state topic for the source, where none may
// be created.
var ErrNoTopic = errors.New("no state topic")

// TopicName returns the state topic's name for a source alias.
func TopicName(alias string) string { return topicPrefix + alias + topicSuffix }

// aliasOf is TopicName backwards.
func aliasOf(topic string) (alias string, ok bool) {
	rest, ok := strings.CutPrefix(topic, topicPrefix)
	if !ok {
		return "", false
	}
	alias, ok = strings.CutSuffix(rest, topicSuffix)
	return alias, ok && alias != ""
}

// Cluster is what a state topic says about the source that it serves.
type Cluster struct {
	Topic string // the state topic
	ID    string // the source's cluster id
	Alias string // the alias under which that source was configured
}

// ReadClusters returns the cluster records of all kferry-state.* topics on the
// cluster behind cl, sorted by topic and id: all sources that any kferry copies
// to it. It reads partition 0 of each; hidden are those that we may see and not
// read.
func ReadClusters(ctx context.Context, cl *kgo.Client) (clusters []Cluster, hidden []string, err error) {
	topics, err := listTopics(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	for _, topic := range topics {
		in, err := clustersIn(ctx, cl, topic)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			hidden = append(hidden, topic)
		case err != nil:
			return nil, nil, err
		}
		clusters = append(clusters, in...)
	}
	return clusters, hidden, nil
}

// clustersIn returns the cluster records of one state topic, sorted by id.
func clustersIn(ctx context.Context, cl *kgo.Client, topic string) ([]Cluster, error) {
	byID := make(map[string]Cluster)
	err := readAll(ctx, cl, topic, []int32{0}, func(r *kgo.Record) error {
		key, err := decodeKey(r.Key)
		if err != nil || key.Kind != kindCluster {
			return err
		}
		return loadInto(byID, key.Cluster, r.Value, func(v clusterValue) (Cluster, error) {
			return Cluster{Topic: topic, ID: key.Cluster, Alias: v.Alias}, nil
		}, "alias")
	})
	if err != nil {
		return nil, err
	}
	sorted := slices.Collect(maps.Values(byID))
	slices.SortFunc(sorted, func(a, b Cluster) int { return strings.Compare(a.ID, b.ID) })
	return sorted, nil
}

// find returns the state topic that belongs to the source's cluster id: the one
// named after the alias, unless only another one knows the id (the alias was
// changed).
func (s *Store) find(ctx context.Context) (topic string, err error) {
	own := TopicName(s.opts.Alias)
	knows := func(c Cluster) bool { return c.ID == s.opts.ClusterID }
	clusters, err := clustersIn(ctx, s.cl, own)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return "", err
	}
	if slices.ContainsFunc(clusters, knows) {
		return own, nil // whatever the others hold
	}
	clusters, hidden, err := ReadClusters(ctx, s.cl)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(clusters, knows); i >= 0 {
		s.opts.Log.Info("state found under another alias", "state_topic", clusters[i].Topic, "alias", s.opts.Alias, "source_cluster_id", s.opts.ClusterID)
		return clusters[i].Topic, nil
	}
	if len(hidden) > 0 {
		s.opts.Log.Warn("state topics that may not be read were not searched for this source", "state_topics", hidden, "source_cluster_id", s.opts.ClusterID)
	}
	return own, nil
}

func listTopics(ctx context.Context, cl *kgo.Client) ([]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var names []string
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		if _, ok := aliasOf(*t.Topic); ok {
			names = append(names, *t.Topic)
		}
	}
	slices.Sort(names)
	return names, nil
}

// topicInfo is a topic as its cluster describes it now.
type topicInfo struct {
	id         [16]byte
	partitions int
	leaders    map[int32]int32 // partitions that have one
}

// describe asks for fresh metadata: kadm would answer from kgo's cache, which
// does not know a topic that was just made.
func describe(ctx context.Context, cl *kgo.Client, topic string) (topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return topicInfo{}, fmt.Errorf("describe %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return topicInfo{}, fmt.Errorf("describe %s: %d topics in the answer", topic, len(resp.Topics))
	}
	t := resp.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return topicInfo{}, fmt.Errorf("describe %s: %w", topic, err)
	}
	info := topicInfo{id: t.TopicID, partitions: len(t.Partitions), leaders: make(map[int32]int32)}
	for _, p := range t.Partitions {
		if p.Leader >= 0 {
			info.leaders[p.Partition] = p.Leader
		}
	}
	return info, nil
}

// ensure creates the topic where it is missing and may be made, waits until
// every partition has a leader, and checks that it is fit to hold state.
func ensure(ctx context.Context, cl *kgo.Client, topic string, create bool) (topicInfo, error) {
	info, err := describe(ctx, cl, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		if !create {
			return topicInfo{}, fmt.Errorf("%w: %s does not exist", ErrNoTopic, topic)
		}
		if err := createTopic(ctx, cl, topic); err != nil {
			return topicInfo{}, err
		}
		info, err = describe(ctx, cl, topic)
	}
	for deadline := time.Now().Add(createTimeout); (err != nil && kerr.IsRetriable(err)) || (err == nil && len(info.leaders) < info.partitions); {
		if time.Now().After(deadline) {
			return topicInfo{}, fmt.Errorf("wait for the leaders of %s: %d of %d after %v", topic, len(info.leaders), info.partitions, createTimeout)
		}
		if err := sleep(ctx, stallWait); err != nil {
			return topicInfo{}, fmt.Errorf("wait for the leaders of %s: %w", topic, err)
		}
		info, err = describe(ctx, cl, topic)
	}
	if err != nil {
		return topicInfo{}, err
	}
	if info.partitions != Shards {
		return topicInfo{}, fmt.Errorf("state topic %s has %d partitions and needs exactly %d: it was not made by kferry, or was altered; move it away or restore it", topic, info.partitions, Shards)
	}
	return info, nil
}

func createTopic(ctx context.Context, cl *kgo.Client, topic string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(createTimeout.Milliseconds())
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, Shards, -1
	rc := kmsg.NewCreateTopicsRequestTopicConfig()
	rc.Name, rc.Value = "cleanup.policy", kmsg.StringPtr("compact")
	rt.Configs = append(rt.Configs, rc)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("create state topic %s: %w", topic, err)
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("create state topic %s: %d topics in the answer", topic, len(resp.Topics))
	}
	t := resp.Topics[0]
	err = kerr.ErrorForCode(t.ErrorCode)
	switch {
	case err == nil, errors.Is(err, kerr.TopicAlreadyExists): // another instance was faster
		return nil
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.PolicyViolation):
		return fmt.Errorf("create state topic %s: %w%s: allow CREATE on it, or create it by hand with %d partitions and cleanup.policy=compact", topic, err, message(t.ErrorMessage), Shards)
	}
	return fmt.Errorf("create state topic %s: %w%s", topic, err, message(t.ErrorMessage))
}

// checkPolicy makes sure that the target never deletes state by age or size. It
// returns errNotShown where we may not look.
func checkPolicy(ctx context.Context, cl *kgo.Client, topic string) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{"cleanup.policy"}
	req.Resources = append(req.Resources, rr)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("describe configs of %s: %w", topic, err)
	}
	for _, r := range resp.Resources {
		err := kerr.ErrorForCode(r.ErrorCode)
		if errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) {
			return fmt.Errorf("%w: %w", errNotShown, err)
		}
		if err != nil {
			return fmt.Errorf("describe configs of %s: %w%s", topic, err, message(r.ErrorMessage))
		}
		for _, c := range r.Configs {
			if c.Name != "cleanup.policy" || c.Value == nil {
				continue
			}
			if *c.Value != "compact" {
				return fmt.Errorf("state topic %s has cleanup.policy=%s and needs compact alone: state would be deleted by age; set it with kafka-configs", topic, *c.Value)
			}
			return nil
		}
	}
	return errNotShown
}

var errNotShown = errors.New("the topic's configs are not shown to us")

func message(m *string) string {
	if m == nil || *m == "" {
		return ""
	}
	return " (" + *m + ")"
}
