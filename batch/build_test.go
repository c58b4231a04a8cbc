package batch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batches for the tests are written by kmsg and compressed by kgo, so that nothing of ours agrees with itself.

// records returns n records as they lie in a batch, uncompressed.
func records(n int) []byte {
	var b []byte
	for i := range n {
		r := kmsg.Record{
			TimestampDelta64: int64(i * 10),
			OffsetDelta:      int32(i),
			Key:              []byte{byte(i)},
			Value:            []byte("value value value"),
			Headers:          []kmsg.Header{{Key: "h", Value: []byte{1}}, {Key: "null"}},
		}
		if i%3 == 0 {
			r.Key = nil
		}
		if i%5 == 0 {
			r.Value = nil
		}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // behind a length of one byte
		b = r.AppendTo(b)
	}
	return b
}

// compress packs b with codec.
func compress(t testing.TB, codec Codec, b []byte) []byte {
	t.Helper()
	by := map[Codec]kgo.CompressionCodec{
		Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(), LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}
	if codec == None {
		return b
	}
	c, err := kgo.DefaultCompressor(by[codec])
	if err != nil {
		t.Fatal(err)
	}
	out, got := c.Compress(new(bytes.Buffer), b)
	if Codec(got) != codec {
		t.Fatalf("compressed with codec %d, want %d", got, codec)
	}
	return out
}

// sealed returns b on the wire, its length and checksum set.
func sealed(b kmsg.RecordBatch) []byte {
	b.Length = int32(minLength2 + len(b.Records))
	b.Magic = 2
	wire := b.AppendTo(nil)
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	return wire
}

// plain returns a batch of n records as a transactional producer's lies in a log.
func plain(t testing.TB, codec Codec, base int64, n int) kmsg.RecordBatch {
	t.Helper()
	return kmsg.RecordBatch{
		FirstOffset:          base,
		PartitionLeaderEpoch: 7,
		Attributes:           int16(codec) | bitTransactional,
		LastOffsetDelta:      int32(n - 1),
		FirstTimestamp:       1_700_000_000_000,
		MaxTimestamp:         1_700_000_000_000 + int64(n-1)*10,
		ProducerID:           4711,
		ProducerEpoch:        3,
		FirstSequence:        99,
		NumRecords:           int32(n),
		Records:              compress(t, codec, records(n)),
	}
}

// marker returns the control batch that ends a transaction.
func marker(kind int16) kmsg.RecordBatch {
	key := binary.BigEndian.AppendUint16(make([]byte, 2), uint16(kind))
	r := kmsg.Record{Key: key, Value: make([]byte, 6)}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	return kmsg.RecordBatch{
		FirstOffset: 50, Attributes: bitControl | bitTransactional, ProducerID: 4711, ProducerEpoch: 3, FirstSequence: -1,
		FirstTimestamp: 1, MaxTimestamp: 1, NumRecords: 1, Records: r.AppendTo(nil),
	}
}

// scanned returns the one batch that wire is.
func scanned(t testing.TB, wire []byte) Batch {
	t.Helper()
	batches, tail, err := Scan(nil, nil, wire)
	if err != nil || tail != 0 || len(batches) != 1 {
		t.Fatalf("scan of one batch of %d bytes: %d batches, tail %d, %v", len(wire), len(batches), tail, err)
	}
	return batches[0]
}
