package recode

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"

	"kferry/batch"
)

// message is one of format 0 or 1 (Kafka's LegacyRecord.java); see package batch for its layout.
type message struct {
	offset     int64
	magic      byte
	attributes byte
	time       int64 // -1 in format 0
	key, value []byte
}

const (
	oldHead     = 12 // offset and size
	maskCodec   = 0x07
	minMessage0 = 14 // of the size
	minMessage1 = 22
)

// nextMessage returns the message that b begins with, and its size in bytes.
func nextMessage(b []byte) (m message, size int, err error) {
	if len(b) < oldHead {
		return m, 0, fmt.Errorf("message cut off")
	}
	n := int(int32(binary.BigEndian.Uint32(b[8:])))
	if n < minMessage0 || n > len(b)-oldHead {
		return m, 0, fmt.Errorf("message of %d bytes, %d are left", n, len(b)-oldHead)
	}
	m.offset = int64(binary.BigEndian.Uint64(b))
	size = oldHead + n
	b = b[oldHead:size]
	if sum, stored := crc32.ChecksumIEEE(b[4:]), binary.BigEndian.Uint32(b); sum != stored {
		return m, 0, fmt.Errorf("message at offset %d: stored %08x, summed %08x", m.offset, stored, sum)
	}
	m.magic, m.attributes, m.time = b[4], b[5], -1
	b = b[6:]
	switch {
	case m.magic > 1 || m.magic == 1 && n < minMessage1:
		return m, 0, fmt.Errorf("message of format %d with %d bytes", m.magic, n)
	case m.magic == 1:
		m.time = int64(binary.BigEndian.Uint64(b))
		b = b[8:]
	}
	var ok1, ok2 bool
	m.key, b, ok1 = oldField(b)
	m.value, b, ok2 = oldField(b)
	if !ok1 || !ok2 || len(b) > 0 {
		return m, 0, fmt.Errorf("key or value out of bounds")
	}
	return m, size, nil
}

// oldField cuts a field behind its 4-byte length off b; nil for null.
func oldField(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	if n == -1 {
		return nil, b, true
	}
	if n < 0 || n > len(b) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// rewriteOld makes format 2 of a message, or of those that it wraps compressed. As for Java consumers, a wrapper inside a wrapper is refused.
func (c *Coder) rewriteOld() error {
	outer, _, err := nextMessage(c.in.Bytes())
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrRecords)
	}
	set, base := c.in.Bytes(), int64(0)
	if codec := c.in.Codec(); codec != batch.None {
		if outer.value == nil {
			return fmt.Errorf("a wrapper around nothing: %w", ErrRecords)
		}
		if codec == batch.Zstd {
			return fmt.Errorf("%s in format %d: %w", codec, outer.magic, ErrCodec)
		}
		buf, inner, err := c.decode(codec, outer.value)
		if err != nil {
			return err
		}
		defer buf.Release()
		set = inner
		// Format 1 counts from the first message that was there, format 0 has the offsets themselves.
		if outer.magic == 1 {
			last, err := lastOffset(set)
			if err != nil || last > outer.offset || last < 0 {
				return fmt.Errorf("the last message inside is at %d, the wrapper at %d: %v: %w", last, outer.offset, err, ErrRecords)
			}
			base = outer.offset - last
		}
	}
	buf := c.pool.Get(len(set))
	defer buf.Release()
	body, count, newest, err := c.upgrade(buf.Bytes(), set, base, outer)
	if err != nil || count == 0 {
		return err
	}
	return c.pack(body, count, 0, newest)
}

func lastOffset(set []byte) (last int64, err error) {
	for len(set) > 0 {
		m, size, err := nextMessage(set)
		if err != nil {
			return -1, err
		}
		last, set = m.offset, set[size:]
	}
	return last, nil
}

// upgrade writes the messages of set that stay to dst as records of format 2, which are never larger, and notes their runs.
func (c *Coder) upgrade(dst, set []byte, base int64, outer message) (body []byte, count int32, newest int64, err error) {
	newest = -1
	last, at := int64(-1), 0
	for read := 0; len(set) > 0; read++ {
		m, size, err := nextMessage(set)
		offset := m.offset + base
		switch {
		case err != nil:
		case m.magic != outer.magic:
			err = fmt.Errorf("format %d in a wrapper of format %d", m.magic, outer.magic)
		case c.in.Codec() != batch.None && m.attributes&maskCodec != 0:
			err = fmt.Errorf("a wrapper inside a wrapper")
		case offset <= last || offset > outer.offset:
			err = fmt.Errorf("offset %d behind %d, the wrapper has %d", offset, last, outer.offset)
		}
		if err != nil {
			return nil, 0, 0, fmt.Errorf("message %d: %w: %w", read, err, ErrRecords)
		}
		last, set = offset, set[size:]
		if offset < c.opts.From {
			continue
		}
		if c.keepTime() {
			m.time = outer.time
		}
		if count == 0 {
			c.first = m.time
		}
		newest = max(newest, m.time)
		c.note(offset, count)
		at += m.put(dst[at:], m.time-c.first, count)
		count++
	}
	if last < 0 {
		return nil, 0, 0, fmt.Errorf("a wrapper around no message: %w", ErrRecords)
	}
	return dst[:at], count, newest, nil
}

// put writes m as a record of format 2 to the front of b and returns its size.
func (m *message) put(b []byte, time int64, delta int32) int {
	t, d, k, v := zigzag(time), zigzag(int64(delta)), fieldLength(m.key), fieldLength(m.value)
	n := binary.PutVarint(b, int64(1+size(t)+size(d)+size(k)+len(m.key)+size(v)+len(m.value)+1))
	b[n] = 0 // attributes
	n++
	n += binary.PutUvarint(b[n:], t)
	n += binary.PutUvarint(b[n:], d)
	n += binary.PutUvarint(b[n:], k)
	n += copy(b[n:], m.key)
	n += binary.PutUvarint(b[n:], v)
	n += copy(b[n:], m.value)
	b[n] = 0 // headers
	return n + 1
}

func fieldLength(b []byte) uint64 {
	if b == nil {
		return zigzag(-1)
	}
	return zigzag(int64(len(b)))
}

// lz4Head reads an LZ4 frame of format 0, in which the header's checksum is wrong: Kafka summed the frame's magic too
// (KAFKA-3160, KafkaLZ4BlockInputStream.java). It returns the frame with the right one.
func (c *Coder) lz4Head(src []byte) io.Reader {
	const magic, flags, contentSize = 4, 4, 0x08
	n := magic + 2
	if len(src) > flags && src[flags]&contentSize != 0 {
		n += 8
	}
	if len(src) <= n {
		return &c.src
	}
	copy(c.head[:], src[:n])
	c.head[n] = byte(xxh32(src[magic:n]) >> 8)
	c.fixed.Reset(c.head[:n+1])
	c.src.Reset(src[n+1:])
	return io.MultiReader(&c.fixed, &c.src)
}

// xxh32 is the hash that LZ4 frames are checked with, of less than 16 bytes.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := p5 + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, x := range b {
		h = bits.RotateLeft32(h+uint32(x)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
