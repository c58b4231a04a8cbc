package lane

import (
	"slices"
	"testing"
	"time"

	"kferry/batch"
)

// A batch's way through the machine, from its delivery over the send to its ack, allocates nothing.
func TestSteadyFlowDoesNotAllocate(t *testing.T) {
	for _, depth := range []int{1, 20} {
		pool := batch.NewPool(0)
		now := time.Unix(1_700_000_000, 0)
		opts := DefaultOptions(depth, 1<<20)
		m := NewMachine(&opts, batch.Identity{ProducerID: 77}, Position{SrcEpoch: -1}, false, now)
		m.Actions()
		m.Opened(now)
		var wires [][]byte
		for i := range int64(20) {
			wires = append(wires, sealed(plain(i*10, 10)))
		}
		fetches := [2][]batch.Batch{fetched(t, pool, wires...), fetched(t, pool, wires...)}
		d := Delivery{Gen: m.gen, LogStart: -1}
		var sink []*Entry // with the sink, from next on
		next := 0
		collect := func() {
			for _, a := range m.Actions() {
				if a.Kind == Send {
					if len(sink) == cap(sink) && next > 0 {
						sink, next = sink[:copy(sink, sink[next:])], 0
					}
					sink = append(sink, a.Entry)
				}
			}
		}
		src, dst := int64(0), int64(0)
		deliver := func() {
			// The same bytes over and over, by turns: their offsets move with the source's.
			batches := fetches[src/200%2]
			for i, b := range batches {
				setBase(b, src+int64(i)*10)
				b.Retain()
			}
			src += 200
			d.Batches, d.HighWatermark, d.LastStable = batches, src, src
			m.Deliver(d, now)
		}
		round := func() {
			deliver()
			for range 20 {
				collect()
				m.Complete(Completion{Entry: sink[next], Outcome: Acked, Base: dst}, now)
				next++
				dst += 10
			}
		}
		deliver() // always some batches ahead: a busy lane
		round()   // the ring, the queue and the slices grow to their size
		if n := testing.AllocsPerRun(100, round); n != 0 {
			t.Errorf("depth %d: %v allocations for 20 batches, want 0", depth, n)
		}
		if m.counts.Batches != 20*102 || m.held != 20*100 || m.ack.Src != src-200 {
			t.Fatalf("depth %d: %d batches acked, %d bytes held, at %d of %d", depth, m.counts.Batches, m.held, m.ack.Src, src)
		}
		m.Abort(now)
		for m.Borrowed() > 0 {
			m.Complete(Completion{Outcome: Lost}, now)
		}
		for _, b := range slices.Concat(fetches[0], fetches[1]) {
			b.Release()
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("depth %d: %d bytes of buffers not released", depth, n)
		}
	}
}
