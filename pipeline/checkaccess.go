package pipeline

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/control"
	"kferry/pipeline/state"
)

// checkedTopics is how many topics one request of check names.
const checkedTopics = 200

// Operations as numbered by Kafka (AclOperation.java).
const (
	opRead   = 3
	opWrite  = 4
	opCreate = 5
	opAlter  = 7
)

// topicAccess is what a cluster tells of one topic and of what we may do with it (KIP-430).
type topicAccess struct {
	exists     bool
	operations int32 // bits by operation; the lowest number where the cluster does not tell
	replicas   int   // the least of a partition
	insync     int   // the least of a partition
}

// may says whether the cluster allows an operation. What it does not tell is taken for allowed.
func (a topicAccess) may(operation int) bool {
	return !a.exists || a.operations == math.MinInt32 || a.operations&(1<<operation) != 0
}

// access is what may be done, and where copies would lie.
type access struct {
	source, target map[string]topicAccess
	stateTopic     string
	mayCreate      bool // any topic on the target
	brokers        []int32
}

func readAccess(ctx context.Context, l *Link, topics []control.Topic) (a access, err error) {
	a.stateTopic = state.TopicName(l.cfg.From)
	var sources []string
	targets := []string{a.stateTopic}
	for _, t := range topics {
		sources, targets = append(sources, t.Source), append(targets, t.Target)
	}
	if a.source, err = topicAccesses(ctx, l.from.Client(), sources); err != nil {
		return a, fmt.Errorf("ask %s for permissions: %w", l.cfg.From, err)
	}
	if a.target, err = topicAccesses(ctx, l.to.Client(), targets); err != nil {
		return a, fmt.Errorf("ask %s for permissions: %w", l.cfg.To, err)
	}
	a.brokers = slices.Sorted(maps.Keys(l.to.Topology().Brokers))
	a.mayCreate = true
	req := kmsg.NewPtrDescribeClusterRequest() // KIP-700: 2.8; older ones do not tell
	req.IncludeClusterAuthorizedOperations = true
	if resp, err := req.RequestWith(ctx, l.to.Client()); err == nil && resp.ErrorCode == 0 {
		a.mayCreate = topicAccess{exists: true, operations: resp.ClusterAuthorizedOperations}.may(opCreate)
	}
	return a, nil
}

func topicAccesses(ctx context.Context, cl *kgo.Client, names []string) (map[string]topicAccess, error) {
	all := make(map[string]topicAccess, len(names))
	for chunk := range slices.Chunk(names, checkedTopics) {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = false, true
		req.Topics = []kmsg.MetadataRequestTopic{}
		for _, name := range chunk {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return nil, err
		}
		for _, t := range resp.Topics {
			if t.Topic == nil || t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
				continue
			}
			a := topicAccess{exists: true, operations: t.AuthorizedOperations, replicas: math.MaxInt, insync: math.MaxInt}
			if resp.Version < 8 {
				a.operations = math.MinInt32
			}
			if t.ErrorCode == kerr.TopicAuthorizationFailed.Code {
				a.operations = 0
			}
			for _, p := range t.Partitions {
				a.replicas, a.insync = min(a.replicas, len(p.Replicas)), min(a.insync, len(p.ISR))
			}
			all[*t.Topic] = a
		}
	}
	return all, nil
}
