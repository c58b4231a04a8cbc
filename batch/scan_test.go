package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// mixed returns a record set as an old topic may hold it, all formats in a row, and where each batch ends.
func mixed(t testing.TB) (wire []byte, ends []int) {
	t.Helper()
	for _, b := range [][]byte{
		legacy(0, 0, 10, []byte("k"), []byte("v")),
		legacy(1, int8(Gzip), 20, nil, []byte("wrapped")),
		sealed(plain(t, None, 21, 3)),
		sealed(plain(t, Zstd, 24, 200)),
		sealed(marker(1)),
		sealed(kmsg.RecordBatch{FirstOffset: 300, LastOffsetDelta: 4}), // emptied by compaction
	} {
		wire = append(wire, b...)
		ends = append(ends, len(wire))
	}
	return wire, ends
}

// TestScanEveryPrefix cuts a record set at each of its bytes: never an error, and always the batches that are whole.
func TestScanEveryPrefix(t *testing.T) {
	wire, ends := mixed(t)
	for n := range len(wire) + 1 {
		whole, end := 0, 0
		for _, e := range ends {
			if e <= n {
				whole, end = whole+1, e
			}
		}
		batches, tail, err := Scan(nil, nil, bytes.Clone(wire[:n]))
		if err != nil || len(batches) != whole || tail != n-end {
			t.Fatalf("%d of %d bytes: %d batches, tail %d, %v; want %d batches, tail %d", n, len(wire), len(batches), tail, err, whole, n-end)
		}
		begin := 0
		for i, b := range batches {
			if !bytes.Equal(b.Bytes(), wire[begin:ends[i]]) || cap(b.Bytes()) != b.Size() {
				t.Fatalf("%d of %d bytes: batch %d is not bytes %d to %d", n, len(wire), i, begin, ends[i])
			}
			begin = ends[i]
		}
	}
}

func TestScanAppends(t *testing.T) {
	first := scanned(t, sealed(plain(t, None, 0, 1)))
	batches, _, err := Scan([]Batch{first}, nil, sealed(plain(t, None, 1, 1)))
	if err != nil || len(batches) != 2 || batches[0].BaseOffset() != 0 || batches[1].BaseOffset() != 1 {
		t.Errorf("%d batches, %v", len(batches), err)
	}
}

// TestScanErrors damages the second of three batches: the first is still given out, and the error says where.
func TestScanErrors(t *testing.T) {
	good := sealed(plain(t, None, 5, 2))
	f := func(bad []byte, sentinel error, want string) {
		t.Helper()
		pool := NewPool(0)
		wire := append(append(bytes.Clone(good), bad...), good...)
		buf := pool.Get(len(wire))
		copy(buf.Bytes(), wire)
		batches, tail, err := Scan(nil, buf, buf.Bytes())
		if !errors.Is(err, sentinel) || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if len(batches) != 1 || batches[0].BaseOffset() != 5 || tail != len(wire)-len(good) {
			t.Errorf("%v: %d batches, tail %d", err, len(batches), tail)
		}
		buf.Release()
		if pool.InUse() == 0 {
			t.Errorf("%v: the batch in front holds no reference", err)
		}
		batches[0].Release()
		if pool.InUse() != 0 {
			t.Errorf("%v: the batch that is none holds a reference", err)
		}
	}
	damaged := func(offset int, put ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[offset:], put)
		return b
	}
	length := func(b []byte, n int32) []byte {
		binary.BigEndian.PutUint32(b[offLength:], uint32(n))
		return b
	}
	const at = "scan batch at byte 113 of 339: "
	if len(good) != 113 {
		t.Fatalf("the batch has %d bytes", len(good))
	}
	f(damaged(offMagic, 3), ErrMagic, at+"magic 3: unknown message format")
	f(damaged(offMagic, 0xff), ErrMagic, at+"magic -1: unknown message format")
	f(length(damaged(0), -1), ErrLength, at+"magic 2, length -1: batch length out of range")
	f(length(damaged(0), math.MinInt32), ErrLength, at+"magic 2, length -2147483648: batch length out of range")
	f(length(damaged(0), 0), ErrLength, at+"magic 2, length 0: batch length out of range")
	f(length(damaged(0), 48), ErrLength, at+"magic 2, length 48: batch length out of range")
	f(length(damaged(offMagic, 1), 21), ErrLength, at+"magic 1, length 21: batch length out of range")
	f(length(damaged(offMagic, 0), 13), ErrLength, at+"magic 0, length 13: batch length out of range")
	f(damaged(offLastOffsetDelta, 0xff, 0xff, 0xff, 0xff), ErrOffset, at+"base offset 5, last offset delta -1: batch offsets out of range")
	f(damaged(offBaseOffset, 0xff), ErrOffset, at+"base offset -72057594037927931, last offset delta 1: batch offsets out of range")
	f(damaged(offBaseOffset, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe), ErrOffset,
		at+"base offset 9223372036854775806, last offset delta 1: batch offsets out of range")
	f(legacy(1, 0, -1, nil, make([]byte, 79)), ErrOffset, at+"base offset -1, last offset delta 0: batch offsets out of range")
}

// TestScanHugeLength takes a length beyond the bytes there are for what it mostly is, a batch cut by the fetch's size.
func TestScanHugeLength(t *testing.T) {
	wire := sealed(plain(t, None, 0, 1))
	binary.BigEndian.PutUint32(wire[offLength:], math.MaxInt32)
	batches, tail, err := Scan(nil, nil, wire)
	if len(batches) != 0 || tail != len(wire) || err != nil {
		t.Errorf("%d batches, tail %d of %d, %v", len(batches), tail, len(wire), err)
	}
}

// TestScanLastOffset lets the last offset there is pass.
func TestScanLastOffset(t *testing.T) {
	if b := scanned(t, sealed(plain(t, None, math.MaxInt64-2, 2))); b.NextOffset() != math.MaxInt64 {
		t.Errorf("next offset %d", b.NextOffset())
	}
}

// TestScanReferences counts: one for each batch, and the caller's.
func TestScanReferences(t *testing.T) {
	pool := NewPool(0)
	wire, ends := mixed(t)
	buf := pool.Get(len(wire))
	copy(buf.Bytes(), wire)
	batches, _, err := Scan(nil, buf, buf.Bytes())
	if err != nil || len(batches) != len(ends) {
		t.Fatalf("%d batches, %v", len(batches), err)
	}
	buf.Release()
	batches[3].Retain()
	for _, b := range batches {
		if pool.InUse() == 0 {
			t.Fatal("released while batches are held")
		}
		b.Release()
	}
	if pool.InUse() == 0 {
		t.Fatal("released while one batch is held twice")
	}
	batches[3].Release()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes in use after the last release", pool.InUse())
	}
}

// TestScanUnowned: views of bytes that the garbage collector owns may be retained and released at will.
func TestScanUnowned(t *testing.T) {
	b := scanned(t, sealed(plain(t, None, 0, 1)))
	b.Release()
	b.Release()
	b.Retain()
	if b.Count() != 1 {
		t.Errorf("count %d", b.Count())
	}
}

func TestNoAllocations(t *testing.T) {
	wire, _ := mixed(t)
	buf := NewPool(0).Get(len(wire))
	copy(buf.Bytes(), wire)
	dst := make([]Batch, 0, 16)
	var head Header
	allocs := testing.AllocsPerRun(100, func() {
		var err error
		dst, _, err = Scan(dst[:0], buf, buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range dst {
			if b.Magic() == 2 && !b.IsControl() {
				Patch(&head, b, Identity{ProducerID: 1})
			}
			b.ControlType()
			b.PayloadCRC()
			if err := b.Verify(); err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations in scan, patch, marker and sums of %d batches, want none", allocs, len(dst))
	}
}

func FuzzScan(f *testing.F) {
	wire, _ := mixed(f)
	f.Add(wire)
	f.Add(wire[:len(wire)-1])
	for codec := None; codec <= Zstd; codec++ {
		f.Add(sealed(plain(f, codec, 1, 5)))
	}
	for _, offset := range []int{offLength, offMagic, offLastOffsetDelta} {
		bad := bytes.Clone(wire)
		bad[offset] = 0xff
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		pool := NewPool(0)
		buf := pool.Get(len(b))
		copy(buf.Bytes(), b)
		batches, tail, err := Scan(nil, buf, buf.Bytes())
		buf.Release()
		pos := 0
		for _, view := range batches {
			if view.Size() == 0 || !bytes.Equal(view.Bytes(), b[pos:pos+view.Size()]) {
				t.Fatalf("the view at byte %d is not what lies there", pos)
			}
			if view.BaseOffset() < 0 || view.NextOffset() <= view.BaseOffset() {
				t.Fatalf("offsets %d to %d", view.BaseOffset(), view.NextOffset())
			}
			pos += view.Size()
			got := fields(view) // panics if it reads past a short message
			if kind, ok := view.ControlType(); ok && (kind != Abort && kind != Commit || !view.IsControl()) {
				t.Fatalf("marker %d of attributes %#x", kind, view.Attributes())
			}
			if view.Magic() == 2 {
				var want kmsg.RecordBatch
				if err := want.ReadFrom(view.Bytes()); err != nil {
					t.Fatalf("kmsg refuses a batch at byte %d: %v", pos, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("(-kmsg +batch):\n%s", diff)
				}
			}
			_, _ = view.Verify(), view.PayloadCRC()
			view.Release()
		}
		if pos+tail != len(b) {
			t.Fatalf("%d bytes in batches and a tail of %d, of %d", pos, tail, len(b))
		}
		if err != nil && !errors.Is(err, ErrLength) && !errors.Is(err, ErrMagic) && !errors.Is(err, ErrOffset) {
			t.Fatalf("an error that is not documented: %v", err)
		}
		if pool.InUse() != 0 {
			t.Fatalf("%d bytes leaked", pool.InUse())
		}
		// What is cut off the end changes nothing in front of it.
		shorter, _, err := Scan(nil, nil, b[:pos])
		if err != nil || len(shorter) != len(batches) {
			t.Fatalf("without the tail: %d batches, %v; with it %d", len(shorter), err, len(batches))
		}
	})
}
