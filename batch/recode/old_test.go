package recode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"kferry/batch"
)

// oldMessage writes a message as it lies in a log of format 0 or 1.
func oldMessage(magic, attributes byte, r rec) []byte {
	b := append(make([]byte, 16), magic, attributes)
	binary.BigEndian.PutUint64(b, uint64(r.Offset))
	if magic == 1 {
		b = binary.BigEndian.AppendUint64(b, uint64(r.Time))
	}
	for _, field := range [][]byte{r.Key, r.Value} {
		if field == nil {
			b = binary.BigEndian.AppendUint32(b, 1<<32-1)
		} else {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(field))), field...)
		}
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}

func scanOld(t testing.TB, wire []byte) batch.Batch {
	views, tail, err := batch.Scan(nil, nil, wire)
	if err != nil || tail != 0 || len(views) != 1 {
		t.Fatalf("%d batches, tail %d, %v", len(views), tail, err)
	}
	return views[0]
}

// oldRecs have a hole behind the second, as compaction leaves it.
func oldRecs(magic byte) []rec {
	recs := []rec{{Offset: 500, Key: []byte("k"), Value: []byte("v")}, {Offset: 501, Value: []byte("no key")}, {Offset: 504, Key: []byte("tombstone")},
		{Offset: 505, Key: []byte{}, Value: []byte{}}, {Offset: 506}, {Offset: 507, Value: make([]byte, 70<<10)}}
	for i := range recs {
		recs[i].Time = -1
		if magic == 1 {
			recs[i].Time = 1_700_000_000_000 - int64(i)<<33
		}
	}
	return recs
}

func TestOldFormats(t *testing.T) {
	pool := batch.NewPool(0)
	c := NewCoder(pool, 1<<20)
	for magic := range byte(2) {
		for _, r := range oldRecs(magic) {
			outs, err := c.Rewrite(scanOld(t, oldMessage(magic, 0, r)), Options{})
			if err != nil {
				t.Fatalf("format %d, plain: %v", magic, err)
			}
			check(t, outs, []rec{r}, source{}, Options{})
			release(outs)
		}
		for _, codec := range allCodecs[1:4] {
			for _, o := range []Options{{}, {From: 501}, {From: 508}, {KeepAppendTime: true}, {MaxBytes: 71 << 10, Avoid: 0xff}} {
				recs := oldRecs(magic)
				var set []byte
				for _, r := range recs {
					if magic == 1 {
						r.Offset -= 498 // counted from the first there was
					}
					set = append(set, oldMessage(magic, 0, r)...)
				}
				payload := packed(t, codec, set)
				if magic == 0 && codec == batch.LZ4 {
					payload[6] ^= 0xff // of the frame's header, wrong in this format
				}
				stamp := byte(8) // LogAppendTime, which format 0 does not know
				in := scanOld(t, oldMessage(magic, byte(codec)|stamp, rec{Offset: 507, Time: 1_800_000_000_000, Value: payload}))
				outs, err := c.Rewrite(in, o)
				if err != nil {
					t.Fatalf("format %d, %s, %+v: %v", magic, codec, o, err)
				}
				for len(recs) > 0 && recs[0].Offset < o.From {
					recs = recs[1:]
				}
				for i := range recs {
					if magic == 1 && o.KeepAppendTime {
						recs[i].Time = 1_800_000_000_000
					}
				}
				check(t, outs, recs, source{codec: codec}, o)
				release(outs)
			}
		}
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes were not released", n)
	}
}

func TestOldFormatsRefused(t *testing.T) {
	c := NewCoder(batch.NewPool(0), 1<<20)
	inner := func(magic byte, offset int64, attributes byte) []byte {
		return packed(t, batch.Gzip, oldMessage(magic, attributes, rec{Offset: offset, Value: []byte("v")}))
	}
	damaged := oldMessage(1, 0, rec{Value: []byte("v")})
	damaged[len(damaged)-1]++
	long := oldMessage(0, 0, rec{Value: []byte("v")})
	long[len(long)-2] = 9 // of the value's length
	binary.BigEndian.PutUint32(long[12:], crc32.ChecksumIEEE(long[16:]))
	for name, tc := range map[string]struct {
		wire []byte
		want error
	}{
		"checksum":       {damaged, batch.ErrCRC},
		"value too long": {long, ErrRecords},
		"null wrapper":   {oldMessage(1, 1, rec{Offset: 9}), ErrRecords},
		"empty wrapper":  {oldMessage(1, 1, rec{Offset: 9, Value: []byte{}}), ErrRecords},
		"no message":     {oldMessage(1, 1, rec{Offset: 9, Value: packed(t, batch.Gzip, nil)}), ErrRecords},
		"nested, large":  {oldMessage(1, 1, rec{Offset: 9, Value: packed(t, batch.Gzip, oldMessage(1, 1, rec{Value: make([]byte, 9000)}))}), ErrRecords},
		"other format":   {oldMessage(1, 1, rec{Offset: 9, Value: inner(0, 0, 0)}), ErrRecords},
		"nested":         {oldMessage(1, 1, rec{Offset: 9, Value: inner(1, 0, 1)}), ErrRecords},
		"offset beyond":  {oldMessage(0, 1, rec{Offset: 9, Value: inner(0, 10, 0)}), ErrRecords},
		"last beyond":    {oldMessage(1, 1, rec{Offset: 9, Value: inner(1, 10, 0)}), ErrRecords},
		"inner checksum": {oldMessage(1, 1, rec{Offset: 9, Value: packed(t, batch.Gzip, damaged)}), ErrRecords},
		"inner cut off":  {oldMessage(1, 1, rec{Offset: 9, Value: packed(t, batch.Gzip, damaged[:11])}), ErrRecords},
		"zstd":           {oldMessage(1, 4, rec{Offset: 9, Value: []byte("v")}), ErrCodec},
		"codec 7":        {oldMessage(1, 7, rec{Offset: 9, Value: []byte("v")}), ErrCodec},
	} {
		if outs, err := c.Rewrite(scanOld(t, tc.wire), Options{}); !errors.Is(err, tc.want) {
			t.Errorf("%s: %d outs, %v; want %v", name, len(outs), err, tc.want)
		}
	}
}

// FuzzOld feeds sets of messages that nobody would write: nothing panics, nothing leaks, and what passes is dense.
func FuzzOld(f *testing.F) {
	for magic := range byte(2) {
		f.Add(magic, byte(0), oldMessage(magic, 0, rec{Offset: 3, Key: []byte("k")}), int64(9), byte(0))
		f.Add(magic, byte(3), packed(f, batch.LZ4, oldMessage(magic, 0, rec{Offset: 3, Key: []byte("k")})), int64(9), byte(2))
	}
	f.Fuzz(func(t *testing.T, magic, attributes byte, value []byte, offset int64, from byte) {
		if offset < 0 || offset == 1<<63-1 {
			return
		}
		pool := batch.NewPool(0)
		payload := value
		if codec := batch.Codec(attributes & 7); codec > 0 && codec < 4 && from&1 == 0 {
			payload = packed(t, codec, value) // so that it comes to what is inside
		}
		outs, err := NewCoder(pool, 1<<20).Rewrite(scanOld(t, oldMessage(magic&1, attributes, rec{Offset: offset, Value: payload})), Options{From: int64(from)})
		for i, out := range outs {
			if recs, e := read(out.Batch); e != nil || len(recs) != int(out.Batch.Count()) || !out.Batch.Dense() {
				t.Fatalf("out %d: %d records, %v", i, len(recs), e)
			}
		}
		if err != nil && outs != nil {
			t.Fatal(fmt.Sprint("outs beside ", err))
		}
		release(outs)
		if n := pool.InUse(); n != 0 {
			t.Fatalf("%d bytes were not released", n)
		}
	})
}
