package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCRC says that a batch is not what its writer summed.
var ErrCRC = errors.New("checksum differs")

// Verify sums the whole batch and compares with the stored checksum. It reads every byte; the data plane leaves that to the
// target's broker. The error is ErrCRC, wrapped with offset and both sums.
func (b Batch) Verify() error {
	var sum uint32
	if b.legacy() {
		sum = crc32.ChecksumIEEE(b.b[offMagic:])
	} else {
		sum = crc32.Checksum(b.b[offAttributes:], castagnoli)
	}
	if sum != b.CRC() {
		return fmt.Errorf("verify batch at offset %d: stored %08x, summed %08x: %w", b.BaseOffset(), b.CRC(), sum, ErrCRC)
	}
	return nil
}

// PayloadCRC returns the CRC-32C of the records alone, without reading them: it follows from the stored checksum, the header and the
// length. A batch and its patched copies have the same, so it finds one in another log. 0 for magic 0 and 1.
func (b Batch) PayloadCRC() uint32 {
	if b.legacy() {
		return 0
	}
	head := crc32.Checksum(b.b[offAttributes:HeaderSize], castagnoli)
	return binary.BigEndian.Uint32(b.b[offCRC:]) ^ shift(head, len(b.b)-HeaderSize)
}

// A CRC is the remainder of a polynomial over GF(2) modulo P. Bits are reflected: bit 31 is x^0, bit 0 is x^31. For messages of one
// length it is affine, crc(a^d) = crc(a) ^ L(d), and n more bytes behind d multiply L(d) by x^8n. So the effect of a changed header
// on the sum of the whole batch costs a few multiplications, whatever the batch's size, and an error already in the sum stays in it.

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	carries    = newCarries()
	powers     = newPowers()
)

const one = 1 << 31 // x^0

// newPowers returns x^8n mod P for n = digit * 256^place, as [place][digit]: 4 KiB. Lengths are 31 bits, so four places do.
func newPowers() (t [4][256]uint32) {
	step := uint32(one >> 8) // x^8
	for place := range t {
		t[place][0] = one
		for digit := 1; digit < 256; digit++ {
			t[place][digit] = multiply(t[place][digit-1], step)
		}
		step = multiply(t[place][255], step)
	}
	return t
}

// newCarries returns what the four terms x^32 to x^35 leave modulo P, for each set of them that a shift by x^4 can carry out.
func newCarries() (t [16]uint32) {
	for set := range t {
		r := uint32(set)
		for range 4 {
			r = timesX(r)
		}
		t[set] = r
	}
	return t
}

// shift returns crc * x^8n mod P: the effect of crc on a sum that n more bytes followed into.
func shift(crc uint32, n int) uint32 {
	for place := 0; n > 0; place, n = place+1, n>>8 {
		if digit := n & 0xff; digit != 0 {
			crc = multiply(crc, powers[place][digit])
		}
	}
	return crc
}

// multiply returns a * b mod P, by Horner's rule over b four terms at a time.
func multiply(a, b uint32) uint32 {
	ax := timesX(a)
	axx := timesX(ax)
	axxx := timesX(axx)
	low := [4]uint32{0, axxx, axx, axx ^ axxx}
	high := [4]uint32{0, ax, a, a ^ ax}
	var r uint32
	for range 8 {
		r = r>>4 ^ carries[r&15] ^ high[b>>2&3] ^ low[b&3]
		b >>= 4
	}
	return r
}

func timesX(a uint32) uint32 { return a>>1 ^ -(a&1)&crc32.Castagnoli }
