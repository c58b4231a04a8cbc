package bench

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
)

// ClusterConfig is an embedded cluster of one broker that stores what it is given.
type ClusterConfig struct {
	ID     string
	Topics map[string]int32 // partition counts, by name
}

// NewCluster listens on a free loopback port. The caller closes it.
func NewCluster(cfg ClusterConfig) (*kfake.Cluster, error) {
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID(cfg.ID)}
	for topic, partitions := range cfg.Topics {
		options = append(options, kfake.SeedTopics(partitions, topic))
	}
	c, err := kfake.NewCluster(options...)
	if err != nil {
		return nil, fmt.Errorf("start an embedded cluster: %w", err)
	}
	return c, nil
}
