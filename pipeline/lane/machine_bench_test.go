package lane

import (
	"fmt"
	"testing"
	"time"

	"kferry/batch"
)

// BenchmarkRoundTrip takes batches from their delivery to their ack, as many in one delivery as a fetch brings of a partition.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		for _, together := range []int{1, 8} {
			b.Run(fmt.Sprintf("size=%dKiB/batches=%d", size>>10, together), func(b *testing.B) {
				now := time.Unix(1_700_000_000, 0)
				pool := batch.NewPool(64 << 20)
				opts := DefaultOptions(128, 64<<20)
				m := NewMachine(&opts, batch.Identity{ProducerID: pid}, Position{SrcEpoch: -1}, false, now)
				m.Actions()
				m.Opened(now)
				wire := plain(0, 1)
				wire.Records = make([]byte, size-batch.HeaderSize)
				var wires [][]byte
				for range together {
					wires = append(wires, sealed(wire))
				}
				batches := fetched(b, pool, wires...)
				var sent []*Entry
				next := int64(0)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for n := 0; n < b.N; n += together {
					for i := range batches {
						setBase(batches[i], next+int64(i))
						batches[i].Retain()
					}
					end := next + int64(together)
					m.Deliver(Delivery{Gen: m.gen, Batches: batches, HighWatermark: end, LastStable: end, LogStart: 0}, now)
					take := func() {
						for _, a := range m.Actions() {
							if a.Kind == Send {
								sent = append(sent, a.Entry)
							}
						}
					}
					take() // one, where it is the first of all
					for len(sent) > 0 {
						e := sent[0]
						sent = sent[:copy(sent, sent[1:])]
						m.Complete(Completion{Entry: e, Outcome: Acked, Base: next}, now)
						next++
						take()
					}
				}
				b.StopTimer()
				for _, x := range batches {
					x.Release()
				}
				m.Abort(now)
				if n := pool.InUse(); n != 0 {
					b.Errorf("%d bytes are out", n)
				}
			})
		}
	}
}
