package sink

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRequest builds a Produce request of one batch of 64 KiB for each partition, all of one topic.
func BenchmarkRequest(b *testing.B) {
	for _, partitions := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			topic := &topicRef{name: "orders", id: [16]byte{1}}
			var items []item
			bytes := 0
			for i, e := range entries(b, 1, partitions, 64<<10-61) {
				items = append(items, item{stream: &stream{topic: topic, partition: int32(i)}, entry: e})
				bytes += e.Size()
			}
			var r request
			b.SetBytes(int64(bytes))
			b.ReportAllocs()
			for b.Loop() {
				r.build(produceTopicID, items, 25*time.Second)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*partitions), "ns/batch")
		})
	}
}
