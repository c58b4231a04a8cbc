//go:build race || invariants

package batch

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// poison overwrites released memory with 0xCC, so that who still reads it is seen: by the bytes, or by the race detector. By
// doubling, because a copy costs the race detector one check and not one for each byte.
func poison(b []byte) {
	b[0] = 0xCC
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// openBufs knows which Bufs are out, and who got them.
type openBufs struct {
	m sync.Map // *Buf to "file:line"
}

func (o *openBufs) add(b *Buf) {
	_, file, line, _ := runtime.Caller(2) // add, Get, its caller
	o.m.Store(b, fmt.Sprintf("%s:%d", file, line))
}

func (o *openBufs) remove(b *Buf) { o.m.Delete(b) }

func (o *openBufs) list() []string {
	var lines []string
	o.m.Range(func(key, line any) bool {
		b := key.(*Buf)
		lines = append(lines, fmt.Sprintf("%s: %d bytes, %d references", line, b.size, b.refs.Load()))
		return true
	})
	slices.Sort(lines)
	return lines
}
