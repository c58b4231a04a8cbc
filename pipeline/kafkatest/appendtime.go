package kafkatest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// AppendTimes makes a log whose records have the broker's times: a batch without compression and one with.
func AppendTimes(ctx context.Context, k *Kafka, topic string) error {
	l := newOddLog(ctx, k, topic, map[string]string{"message.timestamp.type": "LogAppendTime"})
	l.append("plain", values(5), kgo.ProducerBatchCompression(kgo.NoCompression()))
	l.append("packed", values(5), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	l.until("the broker's times", func(heads []Head) bool {
		return len(heads) == 2 && heads[0].Attributes&heads[1].Attributes&LogAppendTime != 0
	})
	return l.close()
}
