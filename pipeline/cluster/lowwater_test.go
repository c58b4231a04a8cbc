package cluster

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// A body that comes in any pieces wakes its reader at its last byte, and the answer behind it, of a few bytes, at once.
func TestLowWater(t *testing.T) {
	raw, theirs := loopback(t)
	c := wireOver(t, raw, raw, theirs, ConnOptions{RequestTimeout: 20 * time.Second})
	if c.low == nil || c.low.raw == nil {
		t.Fatal("the socket's low-water mark is left alone")
	}
	var sizes []int
	for _, n := range []int{1 << 20, lowWaterLeast - 1, lowWaterLeast, lowWaterBytes, lowWaterBytes + 1, 3<<20 + 7} {
		sizes = append(sizes, n, 9) // each with a short answer behind it
	}
	background(t, func() {
		for i := 0; ; i++ {
			b := readFrame(theirs)
			if b == nil {
				return
			}
			answer := frame(corrOf(b), bytes.Repeat([]byte{byte(i)}, sizes[i]))
			for piece := 70_001; len(answer) > 0; piece = max(piece/2, 1) + 1 { // large pieces first, then crumbs
				n := min(piece, len(answer))
				if len(answer) > 300_000 {
					n = 100_000
				}
				if _, err := theirs.Write(answer[:n]); err != nil {
					return
				}
				answer = answer[n:]
			}
		}
	})
	const version = 11 // its header has no tagged fields
	began := time.Now()
	for i, size := range sizes {
		if _, err := c.Write(keyFetch, version, net.Buffers{{0}}); err != nil {
			t.Fatal(err)
		}
		r, err := c.Read()
		if err != nil {
			t.Fatalf("answer %d of %d bytes: %v", i, size, err)
		}
		if !bytes.Equal(r.Body, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("answer %d of %d bytes came with %d others", i, size, len(r.Body))
		}
		r.Buf.Release()
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Fatalf("%v: a reader waited for bytes that had come", took)
	}
}
