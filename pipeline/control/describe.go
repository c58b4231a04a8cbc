package control

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// description is a topic as its cluster shows it.
type description struct {
	id         [16]byte
	partitions int32
	leaders    int32 // partitions that have one
	err        error
}

// describe asks for fresh metadata of the topics, or of all that we may see
// with nil. It never lets a broker create a topic by itself.
func describe(ctx context.Context, cl *kgo.Client, topics []string) (map[string]description, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if topics != nil {
		req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(topics)) // empty means none, nil means all
	}
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	all := make(map[string]description, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		d := description{id: t.TopicID, partitions: int32(len(t.Partitions)), err: kerr.ErrorForCode(t.ErrorCode)}
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				d.leaders++
			}
		}
		all[*t.Topic] = d
	}
	return all, nil
}

func message(m *string) string {
	if m == nil || *m == "" {
		return ""
	}
	return " (" + *m + ")"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
