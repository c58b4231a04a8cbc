package bench

import (
	"bytes"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The workloads of the scenarios are pinned: what they compress to decides every figure per record.
func TestWorkloadIsPinned(t *testing.T) {
	now := testNow
	for name, w := range map[string]Workload{"small": smallRecords, "large": largeBatches} {
		t.Run(name, func(t *testing.T) {
			ring, err := w.Build(now)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d batches of %d records, first %d B, ratio %.3f", len(ring.Batches), ring.Records, len(ring.Batches[0]), ring.Ratio)
			if w.Codec == "zstd" && math.Abs(ring.Ratio-2.0) > 0.1 {
				t.Errorf("zstd ratio %.3f, want 2.0 ± 0.1", ring.Ratio)
			}
			again, err := w.Build(now)
			if err != nil {
				t.Fatal(err)
			}
			for i, b := range ring.Batches {
				if !bytes.Equal(b, again.Batches[i]) {
					t.Fatalf("batch %d differs between two builds", i)
				}
				if len(b) < w.BatchBytes || len(b) > w.BatchBytes*11/10 {
					t.Errorf("batch %d has %d B, want %d to 10%% more", i, len(b), w.BatchBytes)
				}
				checkBatch(t, b, ring.Records, w.RecordBytes)
			}
		})
	}
}

func checkBatch(t *testing.T, raw []byte, records int64, recordBytes int) {
	t.Helper()
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	if got := int32(crc32.Checksum(raw[21:], castagnoli)); got != b.CRC {
		t.Fatalf("CRC %x in the header, %x over the bytes", b.CRC, got)
	}
	body, err := kgo.DefaultDecompressor().Decompress(b.Records, kgo.CompressionCodecType(b.Attributes&7))
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for len(body) > 0 {
		var r kmsg.Record
		if err := r.ReadFrom(body); err != nil {
			t.Fatalf("record %d: %v", n, err)
		}
		if int64(r.OffsetDelta) != n || len(r.Value) != recordBytes {
			t.Fatalf("record %d: offset delta %d, %d B", n, r.OffsetDelta, len(r.Value))
		}
		body = body[len(r.AppendTo(nil)):]
		n++
	}
	if n != records || int64(b.NumRecords) != n || int64(b.LastOffsetDelta) != n-1 {
		t.Fatalf("%d records, header says %d with last delta %d, want %d", n, b.NumRecords, b.LastOffsetDelta, records)
	}
}

func TestWorkloadRefusesNonsense(t *testing.T) {
	for want, w := range map[string]Workload{
		`workload codec "brotli": want none, gzip, snappy, lz4 or zstd`: {Codec: "brotli", RecordBytes: 100, BatchBytes: 1000},
		`workload of 1 B records in 1000 B batches: too small to build`: {Codec: "zstd", RecordBytes: 1, BatchBytes: 1000},
		`workload of 100 B records in 10 B batches: too small to build`: {Codec: "zstd", RecordBytes: 100, BatchBytes: 10},
	} {
		if _, err := w.Build(time.Time{}); err == nil || err.Error() != want {
			t.Errorf("%+v: error %v, want %s", w, err, want)
		}
	}
}

var testNow = time.UnixMilli(1_700_000_000_000)
