package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/lane"
)

// holed returns a batch of records at offsets 100, 101 and 104.
func holed(t *testing.T) batch.Batch {
	t.Helper()
	b := kmsg.RecordBatch{FirstOffset: 100, Magic: 2, LastOffsetDelta: 4, NumRecords: 3}
	for _, delta := range []int32{0, 1, 4} {
		r := kmsg.Record{OffsetDelta: delta, Value: []byte("value")}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(b.Records)
	}
	b.Length = int32(batch.HeaderSize - 12 + len(b.Records))
	wire := b.AppendTo(nil)
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	views, _, err := batch.Scan(nil, nil, wire)
	if err != nil || len(views) != 1 {
		t.Fatalf("%d batches, %v", len(views), err)
	}
	return views[0]
}

func TestRecoder(t *testing.T) {
	pool := batch.NewPool(0)
	r := newRecoder(pool, MemoryBytesFloor)
	b, plan := holed(t), lane.Plan{Reason: lane.RecodedHoles}
	parts, err := r.Recode(t.Context(), b, plan)
	if err != nil || len(parts) != 1 || !parts[0].Batch.Dense() || parts[0].Batch.Count() != 3 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	if d := cmp.Diff([]lane.Run{{Src: 100, Delta: 0, N: 2}, {Src: 104, Delta: 2, N: 1}}, parts[0].Runs); d != "" {
		t.Error(d)
	}
	parts[0].Batch.Release()

	large := plan
	large.MaxBytes = batch.HeaderSize + 5
	if _, err := r.Recode(t.Context(), b, large); !errors.Is(err, lane.ErrTooLarge) {
		t.Errorf("a record that does not fit: %v", err)
	}
	b.Bytes()[batch.HeaderSize+1] = 9
	if _, err := r.Recode(t.Context(), b, plan); !errors.Is(err, lane.ErrCorrupt) {
		t.Errorf("a wrong checksum: %v", err)
	}
	wire := b.Bytes()
	wire[60] = 4 // records
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	if _, err := r.Recode(t.Context(), b, plan); !errors.Is(err, lane.ErrUndecoded) {
		t.Errorf("a wrong count: %v", err)
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes were not released", n)
	}

	// As many at a time as there are workers; who waits for one ends with its context.
	workers := max(1, runtime.GOMAXPROCS(0)/2)
	for range workers {
		<-r.idle
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Recode(ctx, b, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("without a worker: %v", err)
	}
}
