package kafkatest

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
)

// CutInside makes a log of three batches of five records whose start DeleteRecords has moved into the second: to offset 7.
func CutInside(ctx context.Context, k *Kafka, topic string) error {
	l := newOddLog(ctx, k, topic, nil)
	for range 3 {
		l.append("a", values(5))
	}
	l.administer("cut", func(admin *kadm.Client) error {
		to := kadm.Offsets{}
		to.AddOffset(topic, 0, 7, -1)
		cut, err := admin.DeleteRecords(ctx, to)
		if err != nil {
			return err
		}
		got := cut[topic][0]
		if got.Err == nil && got.LowWatermark != 7 {
			return fmt.Errorf("the log starts at %d, want 7", got.LowWatermark)
		}
		return got.Err
	})
	l.until("the cut batch", func(heads []Head) bool { return len(heads) == 2 && heads[0].Offset == 5 })
	return l.close()
}
