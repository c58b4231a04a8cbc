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
	lentClass = 25 // 32 MiB: bytebufferpool's calibration knows nothing larger

	// MaxBuf is the largest size in bytes that Get gives.
	MaxBuf = 1 << maxClass
)

// Pool gives out Bufs, by classes of powers of two. Small ones come from a bytebufferpool.Pool for each class. That forgets what is
// idle with each garbage collection, which for fetch-sized buffers would mean to fault in and clear megabytes again and again; so
// above 256 KiB a free list, bounded in bytes, stands in front of it.
type Pool struct {
	limit int64 // bytes, of the free list
	inUse atomic.Int64
	open  openBufs

	mu   sync.Mutex
	idle int64 // bytes in free
	free [maxClass + 1][]*bytebufferpool.ByteBuffer

	classes [maxClass + 1]bytebufferpool.Pool
}

// NewPool returns a pool that keeps at most limit bytes idle for long. How much is in use at once is the business of the readers'
// credit, not the pool's.
func NewPool(limit int64) *Pool { return &Pool{limit: limit} }

// Get returns a Buf of size bytes with one reference. The bytes are not cleared. A size that a peer named must be checked before:
// below 0 or above MaxBuf it panics.
func (p *Pool) Get(size int) *Buf {
	if size < 0 || size > MaxBuf {
		panic(fmt.Sprintf("BUG: buffer of %d bytes asked for, at most %d", size, MaxBuf))
	}
	class := classOf(size)
	mem := p.take(class)
	if mem == nil {
		mem = p.classes[class].Get()
	}
	if cap(mem.B) != 1<<class {
		mem.B = make([]byte, 1<<class)
	}
	p.inUse.Add(1 << class)
	b := &Buf{mem: mem, size: size, pool: p}
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

func (p *Pool) take(class int) *bytebufferpool.ByteBuffer {
	if class < keepClass {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.popLocked(class)
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
	if class < keepClass {
		p.lend(class, mem)
	} else {
		p.keep(class, mem)
	}
	p.inUse.Add(-1 << class)
}

// keep puts mem into the free list. Where that is full, the class with the most idle bytes makes room: sizes change as a link
// catches up, and what was kept for the old ones must not stay for ever.
func (p *Pool) keep(class int, mem *bytebufferpool.ByteBuffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.idle+1<<class > p.limit {
		most := class
		for c := range p.free {
			if len(p.free[c])<<c > len(p.free[most])<<most {
				most = c
			}
		}
		if most == class {
			p.lend(class, mem)
			return
		}
		p.lend(most, p.popLocked(most))
	}
	p.free[class] = append(p.free[class], mem)
	p.idle += 1 << class
}

// lend gives mem to the class's bytebufferpool, which the garbage collector empties.
func (p *Pool) lend(class int, mem *bytebufferpool.ByteBuffer) {
	if class <= lentClass {
		p.classes[class].Put(mem)
	}
}
