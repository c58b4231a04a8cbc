package batch

import (
	"fmt"
	"sync/atomic"

	"github.com/valyala/bytebufferpool"
)

// Buf is a counted region of bytes out of a Pool. It begins with one reference, its getter's; with the last one its memory goes
// back to the pool. Counting is safe from any goroutine. The handle itself is never used again, so a release too many is always seen.
type Buf struct {
	mem     *bytebufferpool.ByteBuffer // nil once released
	size    int
	refs    atomic.Int32
	pool    *Pool
	release func(cap int)
}

// Bytes returns the bytes asked for, with whatever was in them. Valid until the last reference is released.
func (b *Buf) Bytes() []byte { return b.mem.B[:b.size:b.size] }

// Cap returns the bytes of memory that b holds: the size rounded up to its class. This is what counts against a memory limit.
func (b *Buf) Cap() int { return cap(b.mem.B) }

// SetRelease has f called once, by whoever releases the last reference, after the memory has gone back, with the Cap that was held:
// where credit is given back. It must be set before b is shared, and f must not block.
func (b *Buf) SetRelease(f func(cap int)) { b.release = f }

// Retain takes one more reference. The caller must hold one.
func (b *Buf) Retain() { b.retain(1) }

func (b *Buf) retain(n int) {
	if now := b.refs.Add(int32(n)); now <= int32(n) {
		panic(fmt.Sprintf("BUG: retain of a released buffer of %d bytes", b.size))
	}
}

// Release gives one reference back; the last one frees the memory. One release too many panics.
func (b *Buf) Release() {
	switch now := b.refs.Add(-1); {
	case now > 0:
		return
	case now < 0:
		panic(fmt.Sprintf("BUG: release of a released buffer of %d bytes", b.size))
	}
	mem := b.mem
	held := cap(mem.B)
	b.mem = nil
	b.pool.open.remove(b)
	b.pool.put(mem)
	if b.release != nil {
		b.release(held)
	}
}
