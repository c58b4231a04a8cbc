package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var sizes = []int{128, 512, 1 << 10, 2 << 10, 16 << 10, 64 << 10, 128 << 10, 1 << 20}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("size=%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("size=%dKiB", n>>10)
	}
	return fmt.Sprintf("size=%dB", n)
}

// noise returns a batch of size bytes in all. Its records are random: nothing here reads them but a checksum.
func noise(r *rand.Rand, size int) []byte {
	records := make([]byte, size-HeaderSize)
	for i := range records {
		records[i] = byte(r.Uint32())
	}
	return sealed(kmsg.RecordBatch{
		FirstOffset: r.Int64N(1 << 40), PartitionLeaderEpoch: r.Int32(), Attributes: int16(Zstd) | bitTransactional, LastOffsetDelta: 99,
		FirstTimestamp: r.Int64(), MaxTimestamp: r.Int64(), ProducerID: r.Int64(), ProducerEpoch: int16(r.Int32N(1 << 15)),
		FirstSequence: r.Int32(), NumRecords: 100, Records: records,
	})
}

// BenchmarkScan splits a megabyte of batches of one size.
func BenchmarkScan(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			one := noise(rand.New(rand.NewPCG(1, 2)), size)
			var all []byte
			for len(all) < 1<<20 {
				all = append(all, one...)
			}
			buf := NewPool(0).Get(len(all))
			copy(buf.Bytes(), all)
			var dst []Batch
			b.SetBytes(int64(len(all)))
			b.ReportAllocs()
			for b.Loop() {
				dst, _, _ = Scan(dst[:0], buf, buf.Bytes())
				for _, view := range dst {
					view.Release()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/batch")
		})
	}
}

// BenchmarkPatch compares the linear correction with what it stands for: a header written and the whole batch summed anew, without
// and with the check of the old sum that keeps a damaged batch damaged.
func BenchmarkPatch(b *testing.B) {
	resum := func(dst *Header, src Batch, id Identity) {
		copy(dst[:], src.Bytes())
		clear(dst[:offLength])
		binary.BigEndian.PutUint64(dst[offProducerID:], uint64(id.ProducerID))
		binary.BigEndian.PutUint16(dst[offProducerEpoch:], uint16(id.Epoch))
		binary.BigEndian.PutUint32(dst[offBaseSequence:], uint32(id.Sequence))
		sum := crc32.Checksum(dst[offAttributes:], castagnoli)
		binary.BigEndian.PutUint32(dst[offCRC:], crc32.Update(sum, castagnoli, src.Payload()))
	}
	ways := []struct {
		name  string
		patch func(*Header, Batch, Identity)
	}{
		{"linear", Patch},
		{"full", resum},
		{"verified-full", func(dst *Header, src Batch, id Identity) {
			if src.Verify() == nil {
				resum(dst, src, id)
			}
		}},
	}
	for _, way := range ways {
		for _, size := range sizes {
			b.Run("sum="+way.name+"/"+sizeName(size), func(b *testing.B) {
				src := scanned(b, noise(rand.New(rand.NewPCG(1, 2)), size))
				dst := new(Header)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					way.patch(dst, src, Identity{ProducerID: 1, Epoch: 2, Sequence: 3})
				}
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			src := scanned(b, noise(rand.New(rand.NewPCG(1, 2)), size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if err := src.Verify(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPayloadCRC(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			src := scanned(b, noise(rand.New(rand.NewPCG(1, 2)), size))
			b.ReportAllocs()
			for b.Loop() {
				src.PayloadCRC()
			}
		})
	}
}

// BenchmarkPoolGet takes and releases one buffer; its handle is the one allocation.
func BenchmarkPoolGet(b *testing.B) {
	for _, size := range sizes {
		b.Run(sizeName(size), func(b *testing.B) {
			pool := NewPool(64 << 20)
			b.ReportAllocs()
			for b.Loop() {
				pool.Get(size).Release()
			}
		})
	}
}
