package batch_test

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

// A fetch answer lies in one buffer. Its batches go to another cluster under new headers, their records as they are.
func ExampleScan() {
	pool := batch.NewPool(64 << 20)
	answer := fetched(pool) // two batches and the beginning of a third

	batches, tail, err := batch.Scan(nil, answer, answer.Bytes())
	answer.Release() // the batches hold what they need
	if err != nil {
		fmt.Println(err) // those in front of the damage are in batches all the same
	}
	var next int32
	for _, b := range batches {
		var header batch.Header
		batch.Patch(&header, b, batch.Identity{ProducerID: 7, Epoch: 0, Sequence: next})
		fmt.Printf("offsets %d to %d, %s: send %d + %d bytes as sequence %d\n",
			b.BaseOffset(), b.NextOffset()-1, b.Codec(), len(header), len(b.Payload()), next)
		next += b.Count()
		b.Release() // once the target has acknowledged it
	}
	fmt.Println("cut tail:", tail, "bytes; in use:", pool.InUse())

	// Output:
	// offsets 100 to 102, zstd: send 61 + 40 bytes as sequence 0
	// offsets 103 to 107, lz4: send 61 + 25 bytes as sequence 3
	// cut tail: 30 bytes; in use: 0
}

// fetched stands for what a broker sends.
func fetched(pool *batch.Pool) *batch.Buf {
	put := func(b []byte, base int64, codec batch.Codec, count int32, payload int) []byte {
		wire := kmsg.RecordBatch{
			FirstOffset: base, Length: int32(49 + payload), Magic: 2, Attributes: int16(codec),
			LastOffsetDelta: count - 1, NumRecords: count, Records: make([]byte, payload),
		}
		return wire.AppendTo(b)
	}
	b := put(nil, 100, batch.Zstd, 3, 40)
	b = put(b, 103, batch.LZ4, 5, 25)
	b = append(b, put(nil, 108, batch.LZ4, 9, 500)[:30]...)
	buf := pool.Get(len(b))
	copy(buf.Bytes(), b)
	return buf
}
