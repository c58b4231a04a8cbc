package e2e

import (
	"testing"

	"kferry/pipeline/kafkatest"
)

// heads lists the headers of all batches in a partition's log.
func heads(t *testing.T, k *kafkatest.Kafka, topic string, partition int32) []kafkatest.Head {
	t.Helper()
	all, err := kafkatest.Heads(t.Context(), k, topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
