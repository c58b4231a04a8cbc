package e2e

import (
	"encoding/binary"
	"testing"

	"kferry/pipeline/kafkatest"
)

// head is what a batch's header says; read here by hand, so that a test does not trust what it tests.
type head struct {
	offset       int64
	lastDelta    int32
	pid          int64
	epoch        int16
	sequence     int32
	count        int32
	maxTimestamp int64
	attributes   int16
}

const (
	transactional = 1 << 4
	logAppendTime = 1 << 3
)

// heads lists the headers of all batches in a partition's log.
func heads(t *testing.T, k *kafkatest.Kafka, topic string, partition int32) []head {
	t.Helper()
	raw, err := kafkatest.RawBatches(t.Context(), k.Bootstrap(), topic, partition)
	if err != nil {
		t.Fatal(err)
	}
	var all []head
	for _, b := range raw {
		all = append(all, head{
			offset:       int64(binary.BigEndian.Uint64(b)),
			attributes:   int16(binary.BigEndian.Uint16(b[21:])),
			lastDelta:    int32(binary.BigEndian.Uint32(b[23:])),
			maxTimestamp: int64(binary.BigEndian.Uint64(b[35:])),
			pid:          int64(binary.BigEndian.Uint64(b[43:])),
			epoch:        int16(binary.BigEndian.Uint16(b[51:])),
			sequence:     int32(binary.BigEndian.Uint32(b[53:])),
			count:        int32(binary.BigEndian.Uint32(b[57:])),
		})
	}
	return all
}
