package lane

import (
	"testing"
	"unsafe"
)

// Ten thousand quiet lanes stand in memory all the time. With the 8 bytes that the runtime puts before an object with pointers, these
// are size classes of Go's: a byte more costs the next one.
func TestLaneIsSmall(t *testing.T) {
	for name, size := range map[string][2]uintptr{
		"Machine": {unsafe.Sizeof(Machine{}), 768 - 8},
		"Lane":    {unsafe.Sizeof(Lane{}), 704 - 8},
	} {
		if size[0] > size[1] {
			t.Errorf("%s takes %d bytes, at most %d fit its size class: move what few lanes need behind a pointer, as evidence is", name, size[0], size[1])
		}
	}
}

// A lane that was busy and has nothing left keeps none of the arrays that it had filled.
func TestRestGivesUpArrays(t *testing.T) {
	w := new(window)
	for range 300 {
		w.push()
	}
	w.rest()
	if w.size != 300 {
		t.Fatal("a window with entries was given up")
	}
	for range 300 {
		w.pop()
	}
	w.rest()
	if w.ring != nil || w.free != nil || w.head != 0 {
		t.Errorf("left: a ring of %d, %d free entries", len(w.ring), len(w.free))
	}
	if w.push(); w.size != 1 || len(w.ring) != 8 {
		t.Errorf("after a rest: %d entries in a ring of %d", w.size, len(w.ring))
	}
}
