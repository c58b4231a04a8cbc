package kafkatest

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// NewFake starts an in-process kfake cluster with a cluster id of its own, so that two of them are two clusters to
// kferry. Topics come from kfake.SeedTopics or by hand, never by themselves. The caller closes it. It differs
// from Kafka: records are never decoded, every replica is in step, producer states are kept but not told.
func NewFake(brokers int, opts ...kfake.Opt) (*kfake.Cluster, error) {
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(brokers), kfake.ClusterID(newClusterID())}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("start a fake cluster of %d brokers: %w", brokers, err)
	}
	return c, nil
}

// FakeFor is a fake cluster that lives as long as the test.
func FakeFor(t testing.TB, brokers int, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := NewFake(brokers, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// FakePair is a source and a target of so many brokers each, the topics seeded on the source only.
func FakePair(t testing.TB, brokers int, partitions int32, topics ...string) (source, target *kfake.Cluster) {
	t.Helper()
	return FakeFor(t, brokers, kfake.SeedTopics(partitions, topics...)), FakeFor(t, brokers)
}
