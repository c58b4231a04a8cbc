package control

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/partitioner"
)

// ClusterID asks a cluster for its id; empty where it has none (before 0.10.1).
func ClusterID(ctx context.Context, cl *kgo.Client) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return "", fmt.Errorf("ask for the cluster id: %w", err)
	}
	if resp.ClusterID == nil {
		return "", nil
	}
	return *resp.ClusterID, nil
}

// SameCluster says whether two clients lead to one cluster, whatever their
// bootstrap names, and gives its id.
func SameCluster(ctx context.Context, source, target *kgo.Client) (id string, same bool, err error) {
	if id, err = ClusterID(ctx, source); err != nil {
		return "", false, fmt.Errorf("source: %w", err)
	}
	other, err := ClusterID(ctx, target)
	if err != nil {
		return "", false, fmt.Errorf("target: %w", err)
	}
	return id, id != "" && id == other, nil
}

// Aliases knows which clusters the prefixes in topic names stand for: alias to
// the ids of all clusters that were ever called so, by our configuration or by
// the kferry-state.* topics on the source. Only these count as prefixes.
type Aliases map[string][]string

// Add notes that a cluster is called alias. The id may be empty while the
// cluster was not reached.
func (a Aliases) Add(alias, id string) {
	if !slices.Contains(a[alias], id) {
		a[alias] = append(a[alias], id)
	}
}

// Names returns all aliases, sorted.
func (a Aliases) Names() []string { return slices.Sorted(maps.Keys(a)) }

// Acyclic is prefix naming that also knows the target by its cluster id: a topic
// that was on the target under another alias of it is not sent there again.
type Acyclic struct {
	Namer     namer
	Aliases   Aliases
	Separator string
	TargetID  string // the target's cluster id
}

// Target gives the name of a source topic on the target, false where it is not
// to be forwarded.
func (n Acyclic) Target(topic string) (string, bool) {
	if n.cycle(topic) != "" {
		return "", false
	}
	return n.Namer.Target(topic)
}

// Loops says whether a topic is not forwarded because it has been on the target.
func (n Acyclic) Loops(topic string) bool { return n.cycle(topic) != "" || n.Namer.Loops(topic) }

// Refusal says why a topic is not forwarded; empty for one that is.
func (n Acyclic) Refusal(topic string) string {
	if alias := n.cycle(topic); alias != "" {
		return fmt.Sprintf("topic %q came from the target, cluster id %s, there called %s", topic, n.TargetID, alias)
	}
	return n.Namer.Refusal(topic)
}

// cycle returns the prefix that stands for the target.
func (n Acyclic) cycle(topic string) (alias string) {
	if n.TargetID == "" {
		return ""
	}
	for _, alias := range partitioner.UpstreamChain(topic, n.Separator, n.Aliases.Names()) {
		if slices.Contains(n.Aliases[alias], n.TargetID) {
			return alias
		}
	}
	return ""
}
