package batch

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// slowMultiply is the school method, a bit at a time.
func slowMultiply(a, b uint32) (product uint32) {
	for bit := uint32(one); bit != 0; bit >>= 1 {
		if b&bit != 0 {
			product ^= a
		}
		a = timesX(a)
	}
	return product
}

func TestMultiply(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		a, b := r.Uint32(), r.Uint32()
		if got, want := multiply(a, b), slowMultiply(a, b); got != want {
			t.Fatalf("%08x * %08x = %08x, want %08x", a, b, got, want)
		}
	}
	for bit := range 32 { // the identity, and each power alone
		x := uint32(1) << bit
		if multiply(x, one) != x || multiply(one, x) != x {
			t.Errorf("%08x times one is %08x and %08x", x, multiply(x, one), multiply(one, x))
		}
	}
}

// TestShift holds x^8n against n zero bytes put through hash/crc32.
func TestShift(t *testing.T) {
	zeros := make([]byte, 1<<20)
	through := func(register uint32, n int) uint32 {
		register = ^register // hash/crc32 inverts on the way in and out
		for n > 0 {
			k := min(n, len(zeros))
			register = crc32.Update(register, castagnoli, zeros[:k])
			n -= k
		}
		return ^register
	}
	r := rand.New(rand.NewPCG(3, 4))
	lengths := []int{0, 1, 2, 255, 256, 257, 1<<16 - 1, 1 << 16, 1<<24 - 1, 1 << 24, 1<<24 + 1<<16 + 257}
	for range 4_000 {
		lengths = append(lengths, r.IntN(1<<(1+r.IntN(20))))
	}
	for _, n := range lengths {
		crc := r.Uint32()
		if got, want := shift(crc, n), through(crc, n); got != want {
			t.Fatalf("%08x behind %d bytes is %08x, want %08x", crc, n, got, want)
		}
	}
	// The longest batch a length can name: in halves, for want of 2 GiB of zeros.
	n := 1<<31 - 1
	if got, want := shift(one, n), multiply(shift(one, n/2), shift(one, n-n/2)); got != want {
		t.Errorf("x^8n for n = %d is %08x, want %08x", n, got, want)
	}
}

func TestTableSize(t *testing.T) {
	if size := unsafe.Sizeof(powers); size != 4<<10 {
		t.Errorf("the powers take %d bytes, want 4 KiB: the table must stay in the first-level cache", size)
	}
}

// TestVerify flips each bit of a batch: those in front of what the checksum covers go unseen, all others are found.
func TestVerify(t *testing.T) {
	wire := sealed(plain(t, LZ4, 7, 3))
	for i := range len(wire) * 8 {
		bad := bytes.Clone(wire)
		bad[i/8] ^= 1 << (i % 8)
		err := Batch{b: bad}.Verify()
		covered := i/8 >= offCRC
		switch {
		case i/8 == offMagic: // another format, another sum
		case covered && !errors.Is(err, ErrCRC), !covered && err != nil:
			t.Errorf("bit %d of byte %d: %v", i%8, i/8, err)
		}
	}
	wire[len(wire)-1] ^= 1
	b := scanned(t, wire)
	wire[17], wire[18], wire[19], wire[20] = 0xde, 0xad, 0xbe, 0xef
	sum := crc32.Checksum(wire[21:], castagnoli)
	if got, want := b.Verify().Error(), fmt.Sprintf("verify batch at offset 7: stored deadbeef, summed %08x: checksum differs", sum); got != want {
		t.Errorf("error %q, want %q", got, want)
	}
}

func TestPayloadCRC(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		for _, n := range []int{0, 1, 10, 3000} {
			raw := plain(t, codec, 0, n)
			raw.LastOffsetDelta = max(0, raw.LastOffsetDelta)
			b := scanned(t, sealed(raw))
			if got, want := b.PayloadCRC(), crc32.Checksum(b.Payload(), castagnoli); got != want {
				t.Errorf("codec %s, %d records: %08x, want %08x", codec, n, got, want)
			}
		}
	}
}
