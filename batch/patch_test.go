package batch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPatch holds a patched header against the one that kmsg writes for the batch it should be.
func TestPatch(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		for _, n := range []int{1, 2, 40, 1000} {
			for _, bits := range []int16{
				0, bitTransactional, bitLogAppendTime, bitDeleteHorizon, bitTransactional | bitLogAppendTime | bitDeleteHorizon, 1 << 7,
			} {
				for _, id := range []Identity{{ProducerID: 1 << 40, Epoch: 12, Sequence: 1<<31 - 1}, {ProducerID: -1, Epoch: 5, Sequence: 5}, {}} {
					from := plain(t, codec, 1<<40, n)
					from.Attributes = int16(codec) | bits
					wire := sealed(from)
					before := bytes.Clone(wire)

					want := from
					want.FirstOffset, want.PartitionLeaderEpoch = 0, -1
					want.Attributes = int16(codec) | bits&(1<<7)
					want.ProducerID, want.ProducerEpoch, want.FirstSequence = id.ProducerID, id.Epoch, id.Sequence
					if id.ProducerID == -1 {
						want.ProducerEpoch, want.FirstSequence = -1, -1
					}

					var head Header
					Patch(&head, scanned(t, wire), id)
					if diff := cmp.Diff(sealed(want)[:HeaderSize], head[:]); diff != "" {
						t.Errorf("codec %s, %d records, bits %#x, %+v: header (-want +got):\n%s", codec, n, bits, id, diff)
					}
					if !bytes.Equal(wire, before) {
						t.Errorf("codec %s, %d records: the source's bytes were touched", codec, n)
					}
				}
			}
		}
	}
}

// TestPatchRandom patches batches of 61 B to 2 MiB cut out of one stretch of noise and sums the results with hash/crc32. A third is
// damaged first, by one flipped bit behind the header or in the stored sum: the patched copy must be wrong by exactly as much.
func TestPatchRandom(t *testing.T) {
	const longest = 2 << 20
	r := rand.New(rand.NewPCG(5, 6))
	noise := make([]byte, longest)
	for i := 0; i < len(noise); i += 8 {
		binary.LittleEndian.PutUint64(noise[i:], r.Uint64())
	}
	var head Header
	for i := range 20_000 {
		payload := r.IntN(1 << r.IntN(22))
		if i%1000 == 0 {
			payload = longest - HeaderSize
		}
		payload = min(payload, longest-HeaderSize)
		begin := r.IntN(longest - HeaderSize - payload + 1)
		wire := noise[begin : begin+HeaderSize+payload]
		for j := range HeaderSize {
			wire[j] = byte(r.Uint32())
		}
		wire[offBaseOffset] &= 0x3f
		binary.BigEndian.PutUint32(wire[offLength:], uint32(len(wire)-sizePrefix))
		wire[offMagic] = 2
		wire[offAttributes+1] &^= bitControl
		wire[offLastOffsetDelta] &= 0x7f
		sum := crc32.Checksum(wire[offAttributes:], castagnoli)
		binary.BigEndian.PutUint32(wire[offCRC:], sum)
		damaged := i%3 == 0
		if damaged {
			at := offCRC + r.IntN(4)
			if payload > 0 && i%2 == 0 {
				at = HeaderSize + r.IntN(payload)
			}
			wire[at] ^= 1 << r.IntN(8)
			sum = crc32.Checksum(wire[offAttributes:], castagnoli)
		}

		src := scanned(t, wire)
		wrongBy := src.CRC() ^ sum
		id := Identity{ProducerID: r.Int64() - 1, Epoch: int16(r.Int32N(1 << 15)), Sequence: r.Int32()}
		Patch(&head, src, id)

		got := crc32.Update(crc32.Checksum(head[offAttributes:], castagnoli), castagnoli, src.Payload())
		stored := binary.BigEndian.Uint32(head[offCRC:])
		if stored^got != wrongBy || (wrongBy != 0) != damaged {
			t.Fatalf("batch %d of %d bytes, damaged %t: source wrong by %08x, its copy by %08x", i, len(wire), damaged, wrongBy, stored^got)
		}
		if want := crc32.Checksum(src.Payload(), castagnoli); !damaged && src.PayloadCRC() != want {
			t.Fatalf("batch %d of %d bytes: payload crc %08x, want %08x", i, len(wire), src.PayloadCRC(), want)
		}
		if payload > 64<<10 {
			continue // to save the copying
		}
		copied := Batch{b: append(head[:len(head):len(head)], src.Payload()...)}
		if src.PayloadCRC() != copied.PayloadCRC() {
			t.Fatalf("batch %d of %d bytes: payload crc %08x, of the copy %08x", i, len(wire), src.PayloadCRC(), copied.PayloadCRC())
		}
	}
}

// TestPatchTwice patches a copy again, as a link does that reads what another one wrote.
func TestPatchTwice(t *testing.T) {
	src := scanned(t, sealed(plain(t, Gzip, 9, 30)))
	var once, twice, direct Header
	Patch(&once, src, Identity{ProducerID: 5, Epoch: 1, Sequence: 77})
	Patch(&twice, scanned(t, append(once[:len(once):len(once)], src.Payload()...)), Identity{ProducerID: 6})
	Patch(&direct, src, Identity{ProducerID: 6})
	if twice != direct {
		t.Errorf("patched twice\n%x, at once\n%x", twice, direct)
	}
}

// TestPatchRefuses what may never be sent.
func TestPatchRefuses(t *testing.T) {
	f := func(src Batch, want string) {
		t.Helper()
		defer func() {
			if got := recover(); got != want {
				t.Errorf("panic %v, want %q", got, want)
			}
		}()
		Patch(new(Header), src, Identity{})
	}
	f(scanned(t, sealed(marker(1))), "BUG: patch of a batch with magic 2, attributes 0x30")
	f(scanned(t, legacy(1, 0, 0, nil, nil)), "BUG: patch of a batch with magic 1, attributes 0x0")
	f(scanned(t, legacy(0, 2, 0, nil, nil)), "BUG: patch of a batch with magic 0, attributes 0x2")
}

func FuzzPatch(f *testing.F) {
	for codec := None; codec <= Zstd; codec++ {
		f.Add(sealed(plain(f, codec, 1, 5)), int64(1), int16(2), int32(3), false)
	}
	f.Add(make([]byte, HeaderSize), int64(-1), int16(0), int32(0), true)
	f.Add(make([]byte, 300), int64(1)<<62, int16(-1), int32(-1), false)
	f.Fuzz(func(t *testing.T, wire []byte, producer int64, epoch int16, sequence int32, seal bool) {
		if len(wire) < HeaderSize {
			return
		}
		wire = bytes.Clone(wire)
		wire[offBaseOffset] &= 0x3f
		binary.BigEndian.PutUint32(wire[offLength:], uint32(len(wire)-sizePrefix))
		wire[offMagic] = 2
		wire[offAttributes+1] &^= bitControl
		wire[offLastOffsetDelta] &= 0x7f
		if seal {
			binary.BigEndian.PutUint32(wire[offCRC:], crc32.Checksum(wire[offAttributes:], castagnoli))
		}
		before := bytes.Clone(wire)
		src := scanned(t, wire)
		var head Header
		Patch(&head, src, Identity{ProducerID: producer, Epoch: epoch, Sequence: sequence})
		if !bytes.Equal(wire, before) {
			t.Fatal("the source's bytes were touched")
		}
		copied := scanned(t, append(head[:len(head):len(head)], src.Payload()...))
		if was, is := src.Verify(), copied.Verify(); (was == nil) != (is == nil) {
			t.Fatalf("source: %v; copy: %v", was, is)
		}
		if src.PayloadCRC() != copied.PayloadCRC() {
			t.Fatalf("payload crc %08x, of the copy %08x", src.PayloadCRC(), copied.PayloadCRC())
		}
		want := fields(src)
		want.FirstOffset, want.PartitionLeaderEpoch = 0, -1
		want.Attributes &^= bitTransactional | bitLogAppendTime | bitDeleteHorizon
		want.ProducerID, want.ProducerEpoch, want.FirstSequence = producer, epoch, sequence
		if producer == -1 {
			want.ProducerEpoch, want.FirstSequence = -1, -1
		}
		want.CRC = int32(copied.CRC())
		if diff := cmp.Diff(want, fields(copied)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
