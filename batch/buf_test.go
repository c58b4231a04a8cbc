package batch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// panicOf returns what f panics with.
func panicOf(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestBufMisuse(t *testing.T) {
	pool := NewPool(1 << 20)
	for _, size := range []int{100, 300 << 10} {
		b := pool.Get(size)
		b.Retain()
		b.Release()
		b.Release()
		for range 2 { // and again: the handle is spent for good
			if got, want := panicOf(b.Release), fmt.Sprintf("BUG: release of a released buffer of %d bytes", size); got != want {
				t.Errorf("release: panic %v, want %q", got, want)
			}
		}
		if got, want := panicOf(b.Retain), fmt.Sprintf("BUG: retain of a released buffer of %d bytes", size); got != want {
			t.Errorf("retain: panic %v, want %q", got, want)
		}
	}
	late := pool.Get(100)
	late.Release()
	if got, want := panicOf(late.Retain), "BUG: retain of a released buffer of 100 bytes"; got != want {
		t.Errorf("retain just after the last release: panic %v, want %q", got, want)
	}
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use", pool.InUse())
	}
}

// TestDoubleReleaseAfterReuse: who releases too often must not take the reference of the one that has the memory now.
func TestDoubleReleaseAfterReuse(t *testing.T) {
	pool := NewPool(1 << 20)
	first := pool.Get(1 << 20)
	first.Release()
	second := pool.Get(1 << 20)
	if panicOf(first.Release) == nil {
		t.Error("a second release passed")
	}
	copy(second.Bytes(), "still mine")
	if pool.InUse() != 1<<20 || string(second.Bytes()[:10]) != "still mine" {
		t.Errorf("%d bytes in use, want 1 MiB", pool.InUse())
	}
	second.Release()
}

// TestReleaseHook: once, by the last one, with the capacity, and when the memory is there for the next one.
func TestReleaseHook(t *testing.T) {
	pool := NewPool(1 << 20)
	b := pool.Get(5000)
	var calls []int
	b.SetRelease(func(held int) {
		if pool.InUse() != 0 {
			t.Errorf("%d bytes still in use as the credit comes back", pool.InUse())
		}
		calls = append(calls, held)
	})
	if b.Cap() != 8192 || len(b.Bytes()) != 5000 || cap(b.Bytes()) != 5000 {
		t.Errorf("cap %d, %d bytes with room for %d", b.Cap(), len(b.Bytes()), cap(b.Bytes()))
	}
	b.Retain()
	b.Release()
	if len(calls) != 0 {
		t.Error("called while a reference is open")
	}
	b.Release()
	if len(calls) != 1 || calls[0] != 8192 {
		t.Errorf("calls with %v, want one with 8192", calls)
	}
}

// TestConcurrentReferences shares buffers among goroutines that retain, read and release in any order: under the race detector
// the poison would collide with a reader that holds a reference.
func TestConcurrentReferences(t *testing.T) {
	pool := NewPool(4 << 20)
	var hooks atomic.Int64
	const rounds, readers = 200, 4
	var wg sync.WaitGroup
	for round := range rounds {
		size := 1 << (10 + round%10)
		buf := pool.Get(size)
		for i := range buf.Bytes() {
			buf.Bytes()[i] = byte(round)
		}
		buf.SetRelease(func(int) { hooks.Add(1) })
		for reader := range readers {
			buf.Retain()
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(round), uint64(reader)))
				for range r.IntN(20) {
					buf.Retain()
					if at := r.IntN(size); buf.Bytes()[at] != byte(round) {
						t.Errorf("round %d: byte %d is %#x", round, at, buf.Bytes()[at])
					}
					buf.Release()
				}
				buf.Release()
			})
		}
		buf.Release()
	}
	wg.Wait()
	if pool.InUse() != 0 || hooks.Load() != rounds {
		t.Errorf("%d bytes in use, %d of %d hooks called", pool.InUse(), hooks.Load(), rounds)
	}
}

// TestPoison reads a view after its release on purpose.
func TestPoison(t *testing.T) {
	for _, size := range []int{1, 4096, 5000, 1 << 20} {
		buf := NewPool(1 << 20).Get(size)
		stale := buf.Bytes()
		for i := range stale {
			stale[i] = 1
		}
		buf.Release()
		want := byte(1)
		if poisons {
			want = 0xCC
		}
		if !bytes.Equal(stale, bytes.Repeat([]byte{want}, size)) {
			t.Errorf("%d released bytes are not all %#x", size, want)
		}
	}
}
