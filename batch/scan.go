package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// What Scan refuses. All of them mean that the bytes are no record set, or a damaged one.
var (
	ErrLength = errors.New("batch length out of range")
	ErrMagic  = errors.New("unknown message format")
	ErrOffset = errors.New("batch offsets out of range")
)

// The least that the length field can say, by magic: the fixed fields behind it, with an empty key and value in formats 0 and 1.
const (
	minLength0 = 14
	minLength1 = 22
	minLength2 = HeaderSize - sizePrefix
)

// Scan appends to dst one view for each complete batch in b, one partition's records from a fetch answer, and returns it with the
// number of trailing bytes that are no complete batch. Such a tail is normal: brokers cut where the fetch's size says.
//
// b lies in buf and is not copied. Each appended Batch holds one reference of buf of its own; the caller's own stays the caller's.
// A nil buf means that the garbage collector owns b: Retain and Release then do nothing.
//
// Errors are ErrLength, ErrMagic and ErrOffset, wrapped with the position in b. The batches in front of it are returned all the
// same, with their references, and tail counts from the bad one.
func Scan(dst []Batch, buf *Buf, b []byte) (batches []Batch, tail int, err error) {
	held := len(dst)
	pos := 0
	for {
		var size int
		size, err = sizeAt(b[pos:])
		if err != nil {
			err = fmt.Errorf("scan batch at byte %d of %d: %w", pos, len(b), err)
			break
		}
		if size == 0 {
			break
		}
		dst = append(dst, Batch{b: b[pos : pos+size : pos+size], buf: buf})
		pos += size
	}
	if buf != nil && len(dst) > held {
		buf.retain(len(dst) - held)
	}
	return dst, len(b) - pos, err
}

// sizeAt returns the bytes of the batch that b begins with, 0 if b is too short to hold it or to tell.
func sizeAt(b []byte) (int, error) {
	if len(b) < offMagic+1 {
		return 0, nil
	}
	length := int(int32(binary.BigEndian.Uint32(b[offLength:])))
	least := minLength2
	switch magic := b[offMagic]; magic {
	case 0:
		least = minLength0
	case 1:
		least = minLength1
	case 2:
	default:
		return 0, fmt.Errorf("magic %d: %w", int8(magic), ErrMagic)
	}
	if length < least {
		return 0, fmt.Errorf("magic %d, length %d: %w", b[offMagic], length, ErrLength)
	}
	if length > len(b)-sizePrefix {
		return 0, nil
	}
	// A next offset that does not lie behind the base offset would have the reader fetch the same bytes for ever.
	view := Batch{b: b}
	if base, delta := view.BaseOffset(), view.LastOffsetDelta(); base < 0 || delta < 0 || base > math.MaxInt64-int64(delta)-1 {
		return 0, fmt.Errorf("base offset %d, last offset delta %d: %w", base, delta, ErrOffset)
	}
	return sizePrefix + length, nil
}
