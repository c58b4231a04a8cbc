package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	batchHeaderBytes = 61
	// randomShare is the part of a value that no codec can shrink. Pinned so that zstd at kgo's default level gives
	// ratio 2.0 on whole batches; a test holds it within 0.1.
	randomShare = 0.48
	// ringBytes bounds the pre-encoded batches of one workload: enough for batches to differ, small enough to leave the machine's
	// cache to the process under test.
	ringBytes = 1 << 20

	workloadSeed = 0x6b6665727279 // "kferry"
)

// castagnoli is read-only: the polynomial of every record batch.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Workload is a pinned stream of records: the same workload and time give the same bytes on every machine.
type Workload struct {
	Codec       string // none, gzip, snappy, lz4 or zstd
	RecordBytes int    // bytes of each value; keys are null
	BatchBytes  int    // every batch is at least this long, header included, as it lies in the log
	Records     int    // in each batch; 0: as many as BatchBytes asks for
}

// Ring is a workload encoded once. Batch i of any partition is Batches[i % len(Batches)] with its base offset changed, which is
// outside the CRC. All batches hold the same number of records, so that an offset is a position.
type Ring struct {
	Batches [][]byte
	Records int64   // records in each batch
	Ratio   float64 // record bytes before compression / after, header left out
}

// Build encodes the workload. Records carry time stamps from now on: a batch with an old one makes a forwarder go carefully
// (the target forgets producers by record time), which is another scenario.
func (w Workload) Build(now time.Time) (*Ring, error) {
	compressor, err := w.compressor()
	if err != nil {
		return nil, err
	}
	if w.RecordBytes < 8 || w.BatchBytes < batchHeaderBytes {
		return nil, fmt.Errorf("workload of %d B records in %d B batches: too small to build", w.RecordBytes, w.BatchBytes)
	}
	// The first batch finds the record count, with 1 % to spare for batches that compress a little better.
	records, want := max(1, w.Records), w.BatchBytes+w.BatchBytes/100
	for w.Records == 0 {
		b, _ := w.encode(compressor, 0, records, now)
		if len(b) >= want {
			break
		}
		records = max(records+1, records*want/max(len(b), 1))
	}
	ring := &Ring{Records: int64(records)}
	var raw, packed int
	for i := range max(1, ringBytes/want) {
		b, n := w.encode(compressor, i, records, now)
		if len(b) < w.BatchBytes {
			return nil, fmt.Errorf("batch %d of the ring has %d B, wanted at least %d: the content compresses unevenly", i, len(b), w.BatchBytes)
		}
		ring.Batches = append(ring.Batches, b)
		raw, packed = raw+n, packed+len(b)-batchHeaderBytes
	}
	ring.Ratio = float64(raw) / float64(packed)
	return ring, nil
}

func (w Workload) compressor() (kgo.Compressor, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	codec, ok := codecs[w.Codec]
	if !ok {
		return nil, fmt.Errorf("workload codec %q: want none, gzip, snappy, lz4 or zstd", w.Codec)
	}
	return kgo.DefaultCompressor(codec) // nil for none
}

// encode makes batch number i of the ring with base offset 0 and returns it with the size of its records before compression.
func (w Workload) encode(compressor kgo.Compressor, i, records int, now time.Time) ([]byte, int) {
	random := rand.New(rand.NewPCG(workloadSeed, uint64(i)))
	value := make([]byte, w.RecordBytes)
	var body []byte
	spare := make([]byte, 0, 2*w.RecordBytes+64)
	for n := range records {
		w.fill(value, random, i*records+n)
		r := kmsg.Record{TimestampDelta64: int64(n / 64), OffsetDelta: int32(n), Value: value}
		r.Length = int32(len(r.AppendTo(spare[:0])) - 1) // it counts what follows its own varint, which takes one byte for 0
		body = r.AppendTo(body)
	}
	raw, codec := len(body), kgo.CodecNone
	if compressor != nil {
		body, codec = compressor.Compress(new(bytes.Buffer), body)
		if codec == kgo.CodecError {
			panic("BUG: compressing into memory failed")
		}
	}
	first := now.UnixMilli()
	batch := kmsg.RecordBatch{
		Length:          int32(batchHeaderBytes - 12 + len(body)),
		Magic:           2,
		Attributes:      int16(codec),
		LastOffsetDelta: int32(records - 1),
		FirstTimestamp:  first,
		MaxTimestamp:    first + int64((records-1)/64),
		// Producers have been idempotent by default since 3.0, so a forwarder meets a foreign id on nearly every batch.
		ProducerID: 4242, ProducerEpoch: 0, FirstSequence: int32(i * records),
		NumRecords: int32(records),
		Records:    body,
	}
	b := batch.AppendTo(nil)
	seal(b)
	return b, raw
}

// fill writes one value: words of a log line that repeats, then bytes that do not.
func (w Workload) fill(value []byte, random *rand.Rand, number int) {
	const line = `{"service":"checkout","level":"info","msg":"order accepted","region":"eu-1","sequence":`
	text := len(value) - int(float64(len(value))*randomShare)
	written := copy(value[:text], fmt.Sprintf("%07d ", number))
	for written < text {
		written += copy(value[written:text], line)
	}
	for rest := value[text:]; len(rest) > 0; {
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], random.Uint64())
		rest = rest[copy(rest, word[:]):]
	}
}
