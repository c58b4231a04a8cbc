package batch

import (
	"runtime"
	"testing"

	"github.com/valyala/bytebufferpool"
)

func TestPoolClasses(t *testing.T) {
	pool := NewPool(0)
	f := func(size, want int) {
		t.Helper()
		b := pool.Get(size)
		if b.Cap() != want || len(b.Bytes()) != size || pool.InUse() != int64(want) {
			t.Errorf("get of %d: cap %d, %d bytes, %d in use; want cap %d", size, b.Cap(), len(b.Bytes()), pool.InUse(), want)
		}
		b.Release()
		if pool.InUse() != 0 {
			t.Errorf("get of %d: %d in use after release", size, pool.InUse())
		}
	}
	f(0, 4<<10)
	f(1, 4<<10)
	f(4<<10, 4<<10)
	f(4<<10+1, 8<<10)
	f(256<<10, 256<<10)
	f(1<<20-1, 1<<20)
	f(1<<20+1, 2<<20)
	if class := classOf(MaxBuf); class != maxClass {
		t.Errorf("the largest is of class %d, want %d", class, maxClass)
	}
}

func TestPoolRefuses(t *testing.T) {
	pool := NewPool(0)
	f := func(size int, want string) {
		t.Helper()
		if got := panicOf(func() { pool.Get(size) }); got != want {
			t.Errorf("panic %v, want %q", got, want)
		}
	}
	f(-1, "BUG: buffer of -1 bytes asked for, at most 134217728")
	f(MaxBuf+1, "BUG: buffer of 134217729 bytes asked for, at most 134217728")
}

// TestPoolKeepsLarge: what is on the free list outlives garbage collections, is given out again, and is not cleared.
func TestPoolKeepsLarge(t *testing.T) {
	pool := NewPool(1 << 20)
	first := pool.Get(1 << 20)
	memory := &first.Bytes()[0]
	first.Release()
	if pool.Free() != 1<<20 {
		t.Fatalf("%d bytes free, want 1 MiB", pool.Free())
	}
	runtime.GC()
	runtime.GC() // sync.Pool needs two to forget
	again := pool.Get(1<<20 - 5)
	if &again.Bytes()[0] != memory {
		t.Error("other memory after a garbage collection")
	}
	if pool.Free() != 0 {
		t.Errorf("%d bytes free while they are in use", pool.Free())
	}
	again.Release()
}

// TestPoolLimit fills the list over its bound: it stays within, and gives up what it has most of.
func TestPoolLimit(t *testing.T) {
	const mib = 1 << 20
	pool := NewPool(4 * mib)
	hold := func(sizes ...int) (held []*Buf) {
		for _, size := range sizes {
			held = append(held, pool.Get(size))
		}
		return held
	}
	release := func(held []*Buf) {
		for _, b := range held {
			b.Release()
			if pool.Free() > 4*mib {
				t.Fatalf("%d bytes free, over the limit", pool.Free())
			}
		}
	}
	idle := func(size int) int64 { return int64(len(pool.free[classOf(size)])) * int64(size) }

	release(hold(mib, mib, mib, mib, mib, mib))
	if idle(mib) != 4*mib || pool.Free() != 4*mib {
		t.Errorf("%d bytes free, want the limit", pool.Free())
	}
	release(hold(2 * mib)) // the sizes change: two of the old ones make room
	if idle(mib) != 2*mib || idle(2*mib) != 2*mib || pool.Free() != 4*mib {
		t.Errorf("%d bytes free in 1 MiB, %d in 2 MiB", idle(mib), idle(2*mib))
	}
	release(hold(4 * mib)) // fits only alone
	if idle(4*mib) != 4*mib || pool.Free() != 4*mib {
		t.Errorf("%d bytes free in 4 MiB, %d in all", idle(4*mib), pool.Free())
	}
	if held := hold(2 * mib); pool.InUse()+pool.Free() > 4*mib {
		t.Errorf("%d bytes in use, %d idle: over the limit", pool.InUse(), pool.Free())
	} else {
		release(held)
	}
	release(hold(8 * mib)) // fits never
	if idle(8*mib) != 0 || pool.Free() > 4*mib {
		t.Errorf("%d bytes free in 8 MiB, %d in all", idle(8*mib), pool.Free())
	}
	release(hold(100, 5000, 128<<10)) // small ones are not its business
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use", pool.InUse())
	}
}

// TestPoolCalibration lets bytebufferpool calibrate itself, which it does every 42,000 returns: a class must go on keeping its own size.
func TestPoolCalibration(t *testing.T) {
	for class := minClass; class < keepClass; class++ {
		pool := NewPool(0)
		mem := &bytebufferpool.ByteBuffer{B: make([]byte, 1<<class)}
		for range 42_002 {
			mem.B = mem.B[:cap(mem.B)]
			pool.classes[class].Put(mem)
			pool.classes[class].Get()
		}
		if fresh := pool.classes[class].Get(); cap(fresh.B) != 1<<class {
			t.Errorf("class of %d bytes: calibrated to %d", 1<<class, cap(fresh.B))
		}
	}
}

// What is reserved before a Buf is taken is what it then holds.
func TestCapFor(t *testing.T) {
	pool := NewPool(0)
	for _, size := range []int{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1} {
		b := pool.Get(size)
		if got := CapFor(size); got != b.Cap() || int64(got) != pool.InUse() {
			t.Errorf("size %d: %d is foreseen, %d is held", size, got, b.Cap())
		}
		b.Release()
	}
}
