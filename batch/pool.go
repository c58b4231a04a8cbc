package batch

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/valyala/bytebufferpool"
)

const (
	minClass  = 12 // 4 KiB: below it the handle costs more than the memory
	maxClass  = 27 // 128 MiB: above the 100 MiB that brokers let through in one frame
	keepClass = 18 // 256 KiB: from here on buffers are kept through a garbage collection

	// MaxBuf is the largest size in bytes that Get gives.
	MaxBuf = 1 << maxClass
)

// Pool gives out Bufs, by classes of powers of two. Small ones come from a bytebufferpool.Pool for each class. That forgets what is
// idle with each garbage collection, which for fetch-sized buffers would mean to fault in and clear megabytes again and again; so
// from 256 KiB on a free list stands in front of it. What that keeps and what is in use stay below the pool's limit together: memory
// that is asked for in another class takes the place of what is idle.
type Pool struct {
	limit int64 // bytes in use and idle
	inUse atomic.Int64
	open  openBufs

	mu   sync.Mutex
	idle int64 // bytes in free
	free [maxClass + 1][]*bytebufferpool.ByteBuffer
	slab []Buf // handles to come; each is used once

	classes [maxClass + 1]bytebufferpool.Pool
}

// slabSize is how many handles are made at once: they are never used again, so that a release too many is always seen.
const slabSize = 32

// NewPool returns a pool that keeps bytes idle as long as those and the ones in use are at most limit. How much is in use at once is the
// business of the readers' credit, not the pool's.
func NewPool(limit int64) *Pool { return &Pool{limit: limit} }

// Get returns a Buf of size bytes with one reference. The bytes are not cleared. A size that a peer named must be checked before:
// below 0 or above MaxBuf it panics.
func (p *Pool) Get(size int) *Buf {
	if size < 0 || size > MaxBuf {
		panic(fmt.Sprintf("BUG: buffer of %d bytes asked for, at most %d", size, MaxBuf))
	}
	class := classOf(size)
	b, mem := p.take(class)
	if mem == nil {
		mem = p.classes[class].Get()
	}
	if cap(mem.B) != 1<<class {
		mem.B = make([]byte, 1<<class)
	}
	b.mem, b.size, b.pool = mem, size, p
	b.refs.Store(1)
	p.open.add(b)
	return b
}

// InUse returns the bytes of memory in Bufs that are not released yet.
func (p *Pool) InUse() int64 { return p.inUse.Load() }

// Free returns the bytes of memory that the free list keeps idle. What bytebufferpool keeps of the small classes until the next
// garbage collection is not in it.
func (p *Pool) Free() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle
}

// Open lists the Bufs that are not released yet, each with its references and the line that got it, sorted: what has leaked, once all that
// used the pool has ended. Only the race detector and -tags invariants keep that record; elsewhere it is nil, and InUse tells that there is a leak.
func (p *Pool) Open() []string { return p.open.list() }

// CapFor returns the Cap that a Buf of size bytes will have: what to reserve before it is asked for.
func CapFor(size int) int { return 1 << classOf(size) }

func classOf(size int) int {
	return max(minClass, bits.Len(uint(max(size, 1)-1)))
}

// take gives a handle and, if there is any, idle memory of the class.
func (p *Pool) take(class int) (*Buf, *bytebufferpool.ByteBuffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.slab) == 0 {
		p.slab = make([]Buf, slabSize)
	}
	b := &p.slab[0]
	p.slab = p.slab[1:]
	p.inUse.Add(1 << class)
	mem := p.popLocked(class)
	if mem == nil {
		p.makeRoomLocked()
	}
	return b, mem
}

// makeRoomLocked forgets idle memory, that of the class with the most first, until the limit is kept or nothing is idle.
func (p *Pool) makeRoomLocked() {
	for p.idle > 0 && p.inUse.Load()+p.idle > p.limit {
		most := 0
		for c := range p.free {
			if len(p.free[c])<<c > len(p.free[most])<<most {
				most = c
			}
		}
		p.popLocked(most)
	}
}

func (p *Pool) popLocked(class int) *bytebufferpool.ByteBuffer {
	last := len(p.free[class]) - 1
	if last < 0 {
		return nil
	}
	mem := p.free[class][last]
	p.free[class][last] = nil
	p.free[class] = p.free[class][:last]
	p.idle -= 1 << class
	return mem
}

// put takes back what Get gave.
func (p *Pool) put(mem *bytebufferpool.ByteBuffer) {
	mem.B = mem.B[:cap(mem.B)] // the whole, since bytebufferpool calibrates itself by the lengths it gets back
	class := classOf(cap(mem.B))
	poison(mem.B)
	p.inUse.Add(-1 << class)
	if class < keepClass {
		p.classes[class].Put(mem)
	} else {
		p.keep(class, mem)
	}
}

// keep puts mem into the free list. Where the limit is reached, the class with the most idle bytes makes room: sizes
// change as a link catches up, and what was kept for the old ones must not stay for ever.
func (p *Pool) keep(class int, mem *bytebufferpool.ByteBuffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free[class] = append(p.free[class], mem)
	p.idle += 1 << class
	p.makeRoomLocked()
}
