package recode

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// record is one record of format 2 as it lies in decoded bytes (Kafka's DefaultRecord.java).
type record struct {
	attributes byte
	time       int64  // less the batch's base timestamp
	delta      int32  // offset less the batch's base offset
	rest       []byte // from the key's length on
}

// next returns the record that b begins with, and its size in bytes. It reads lengths only.
func next(b []byte) (r record, size int, err error) {
	length, n := varint32(b)
	if n == 0 || length < 0 || int(length) > len(b)-n {
		return r, 0, fmt.Errorf("record of %d bytes, %d are left", length, len(b)-n)
	}
	size = n + int(length)
	b = b[n:size]
	if len(b) == 0 {
		return r, 0, fmt.Errorf("record without attributes")
	}
	r.attributes = b[0]
	b = b[1:]
	if r.time, n = binary.Varint(b); n <= 0 {
		return r, 0, fmt.Errorf("timestamp cut off")
	}
	b = b[n:]
	if r.delta, n = varint32(b); n == 0 {
		return r, 0, fmt.Errorf("offset cut off")
	}
	r.rest = b[n:]
	return r, size, checkRest(r.rest)
}

// checkRest walks over key, value and headers, which have to fill b.
func checkRest(b []byte) error {
	at := field(b, 0, -1)
	at = field(b, at, -1)
	if at < 0 {
		return fmt.Errorf("key or value out of bounds")
	}
	headers, n := varint32(b[at:])
	if n == 0 || headers < 0 {
		return fmt.Errorf("%d headers", headers)
	}
	at += n
	for ; at >= 0 && headers > 0; headers-- {
		at = field(b, field(b, at, 0), -1)
	}
	if at != len(b) {
		return fmt.Errorf("headers do not end where the record does")
	}
	return nil
}

// field returns where the field at b[at:], a length of at least least and as many bytes, ends: -1 if it does not, or at is.
func field(b []byte, at int, least int32) int {
	if at < 0 {
		return -1
	}
	length, n := varint32(b[at:])
	at += n
	if n == 0 || length < least || int(length) > len(b)-at {
		return -1
	}
	return at + int(max(length, 0))
}

// varint32 is n 0 if b does not begin with a zigzag number of 32 bits.
func varint32(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return int32(b[0]>>1) ^ -int32(b[0]&1), 1
	}
	long, n := binary.Varint(b)
	if n <= 0 || long < math.MinInt32 || long > math.MaxInt32 {
		return 0, 0
	}
	return int32(long), n
}

// put writes r to the front of b and returns its size. r.rest may lie in b itself, not before where it goes.
func (r *record) put(b []byte) int {
	time, delta := zigzag(r.time), zigzag(int64(r.delta))
	n := binary.PutVarint(b, int64(1+size(time)+size(delta)+len(r.rest)))
	b[n] = r.attributes
	n++
	n += binary.PutUvarint(b[n:], time)
	n += binary.PutUvarint(b[n:], delta)
	return n + copy(b[n:], r.rest)
}

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

// size returns the bytes of u as a varint.
func size(u uint64) int { return (bits.Len64(u|1) + 6) / 7 }
