package batch

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Batch travels by value through channels and windows.
func TestBatchIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Batch{}); size > 40 {
		t.Errorf("a Batch has %d bytes, want at most 40", size)
	}
}

// fields reads through every accessor what kmsg's struct has.
func fields(b Batch) kmsg.RecordBatch {
	return kmsg.RecordBatch{
		FirstOffset:          b.BaseOffset(),
		Length:               int32(b.Size() - sizePrefix),
		PartitionLeaderEpoch: b.LeaderEpoch(),
		Magic:                b.Magic(),
		CRC:                  int32(b.CRC()),
		Attributes:           b.Attributes(),
		LastOffsetDelta:      b.LastOffsetDelta(),
		FirstTimestamp:       b.BaseTimestamp(),
		MaxTimestamp:         b.MaxTimestamp(),
		ProducerID:           b.ProducerID(),
		ProducerEpoch:        b.ProducerEpoch(),
		FirstSequence:        b.BaseSequence(),
		NumRecords:           b.Count(),
		Records:              b.Payload(),
	}
}

func TestAccessors(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		wire := sealed(plain(t, codec, 1<<33, 40))
		var want kmsg.RecordBatch
		if err := want.ReadFrom(wire); err != nil {
			t.Fatal(err)
		}
		b := scanned(t, wire)
		if diff := cmp.Diff(want, fields(b)); diff != "" {
			t.Errorf("codec %s (-kmsg +batch):\n%s", codec, diff)
		}
		if b.Codec() != codec {
			t.Errorf("codec %s, want %s", b.Codec(), codec)
		}
		if want := int64(1<<33 + 40); b.NextOffset() != want {
			t.Errorf("codec %s: next offset %d, want %d", codec, b.NextOffset(), want)
		}
		if &b.Bytes()[0] != &wire[0] || len(b.Bytes()) != len(wire) {
			t.Errorf("codec %s: the view is a copy", codec)
		}
		if err := b.Verify(); err != nil {
			t.Errorf("codec %s: %v", codec, err)
		}
	}
}

func TestAttributeBits(t *testing.T) {
	f := func(bits int16, logAppendTime, transactional, control, deleteHorizon bool) {
		t.Helper()
		raw := plain(t, Zstd, 0, 1)
		raw.Attributes = int16(Zstd) | bits
		b := scanned(t, sealed(raw))
		if b.HasLogAppendTime() != logAppendTime || b.IsTransactional() != transactional || b.IsControl() != control ||
			b.HasDeleteHorizon() != deleteHorizon || b.Codec() != Zstd {
			t.Errorf("attributes %#x: LogAppendTime %t, transactional %t, control %t, delete horizon %t, codec %s",
				b.Attributes(), b.HasLogAppendTime(), b.IsTransactional(), b.IsControl(), b.HasDeleteHorizon(), b.Codec())
		}
	}
	f(0, false, false, false, false)
	f(0x08, true, false, false, false)
	f(0x10, false, true, false, false)
	f(0x20, false, false, true, false)
	f(0x40, false, false, false, true)
	f(0x78, true, true, true, true)
	f(-0x80, false, false, false, false) // all that Kafka has not given a meaning
}

func TestDense(t *testing.T) {
	f := func(count, lastDelta int32, want bool) {
		t.Helper()
		raw := plain(t, None, 0, 1)
		raw.NumRecords, raw.LastOffsetDelta = count, lastDelta
		if got := scanned(t, sealed(raw)).Dense(); got != want {
			t.Errorf("count %d, last offset delta %d: dense %t", count, lastDelta, got)
		}
	}
	f(1, 0, true)
	f(100, 99, true)
	f(math.MaxInt32, math.MaxInt32-1, true)
	f(99, 99, false)                        // compacted
	f(0, 99, false)                         // all compacted away, kept for its producer's sequence
	f(101, 99, false)                       // a lie
	f(-1, 0, false)                         // a lie
	f(math.MinInt32, math.MaxInt32, false)  // whose difference wraps
	f(-math.MaxInt32, math.MaxInt32, false) // the same
}

func TestCodecString(t *testing.T) {
	var got []string
	for c := range Codec(6) {
		got = append(got, c.String())
	}
	if diff := cmp.Diff([]string{"none", "gzip", "snappy", "lz4", "zstd", "codec-5"}, got); diff != "" {
		t.Error(diff)
	}
}

// legacy returns a message of format 0 or 1 as kmsg writes it.
func legacy(magic int8, attributes int8, offset int64, key, value []byte) []byte {
	var b []byte
	if magic == 0 {
		m := kmsg.MessageV0{Offset: offset, Attributes: attributes, Key: key, Value: value}
		b = m.AppendTo(nil)
	} else {
		m := kmsg.MessageV1{Offset: offset, Magic: 1, Attributes: attributes, Timestamp: 1_500_000_000_000, Key: key, Value: value}
		b = m.AppendTo(nil)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

// TestLegacy asks the shortest messages there are for everything: they end before most fields of format 2 begin.
func TestLegacy(t *testing.T) {
	for magic := range int8(2) {
		stamp := int64(-1)
		if magic == 1 {
			stamp = 1_500_000_000_000
		}
		wire := legacy(magic, int8(Snappy)|bitLogAppendTime, 1000, nil, nil)
		if want := []int{26, 34}[magic]; len(wire) != want {
			t.Fatalf("magic %d: the shortest message has %d bytes, want %d", magic, len(wire), want)
		}
		b := scanned(t, wire)
		want := kmsg.RecordBatch{
			FirstOffset: 1000, Length: int32(len(wire) - 12), PartitionLeaderEpoch: -1, Magic: magic, CRC: int32(crc32.ChecksumIEEE(wire[16:])),
			Attributes: 0x0a, FirstTimestamp: stamp, MaxTimestamp: stamp, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: -1,
		}
		if diff := cmp.Diff(want, fields(b)); diff != "" {
			t.Errorf("magic %d (-want +got):\n%s", magic, diff)
		}
		if b.NextOffset() != 1001 || b.Codec() != Snappy || !b.HasLogAppendTime() {
			t.Errorf("magic %d: next offset %d, codec %s, LogAppendTime %t", magic, b.NextOffset(), b.Codec(), b.HasLogAppendTime())
		}
		if b.Dense() || b.PayloadCRC() != 0 {
			t.Errorf("magic %d: dense %t, payload crc %08x", magic, b.Dense(), b.PayloadCRC())
		}
		if err := b.Verify(); err != nil {
			t.Errorf("magic %d: %v", magic, err)
		}
	}
	// Bits that a format 2 batch would have a meaning for have none here.
	b := scanned(t, legacy(1, 0x70, 0, nil, nil))
	if _, ok := b.ControlType(); ok || b.IsControl() || b.IsTransactional() || b.HasDeleteHorizon() {
		t.Error("a message of format 1 has bits of format 2")
	}
}
