package kafkatest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/kafkatest"
)

func TestFakePairIsTwoClusters(t *testing.T) {
	source, target := kafkatest.FakePair(t, 2, 7, "a", "b")
	client, err := kgo.NewClient(kgo.SeedBrokers(source.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	m, err := kadm.NewClient(client).Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for topic, d := range m.Topics {
		got[topic] = len(d.Partitions)
	}
	if d := cmp.Diff(map[string]int{"a": 7, "b": 7}, got); d != "" {
		t.Errorf("topics of the source (-want +got):\n%s", d)
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(target.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	n, err := kadm.NewClient(other).Metadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.Cluster == n.Cluster || len(n.Topics) != 0 || len(n.Brokers) != 2 {
		t.Errorf("target: id %s (source %s), %d topics, %d brokers, want another id, none and 2", n.Cluster, m.Cluster, len(n.Topics), len(n.Brokers))
	}
}
