package recode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"kferry/batch"
)

// Batches are written by kmsg, compressed and read again by kgo: nothing of ours agrees with itself.

var allCodecs = []batch.Codec{batch.None, batch.Gzip, batch.Snappy, batch.LZ4, batch.Zstd}

// rec is a record as a consumer sees it.
type rec struct {
	Offset, Time int64
	Key, Value   []byte
	Headers      []kgo.RecordHeader
}

// source is a batch at its source.
type source struct {
	codec         batch.Codec
	attributes    int16
	base          int64
	last          int32
	first, newest int64 // timestamps in the header
	recs          []rec
}

// rawRecords writes recs as they lie in a batch.
func rawRecords(recs []rec, base, first int64) []byte {
	var b []byte
	for _, r := range recs {
		k := kmsg.Record{TimestampDelta64: r.Time - first, OffsetDelta: int32(r.Offset - base), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		body := k.AppendTo(nil)[1:] // behind a length of 0
		b = append(binary.AppendVarint(b, int64(len(body))), body...)
	}
	return b
}

func packed(t testing.TB, codec batch.Codec, b []byte) []byte {
	if codec == batch.None {
		return b
	}
	c, err := kgo.DefaultCompressor([]kgo.CompressionCodec{1: kgo.GzipCompression(), 2: kgo.SnappyCompression(), 3: kgo.Lz4Compression(), 4: kgo.ZstdCompression()}[codec])
	if err != nil {
		t.Fatal(err)
	}
	out, _ := c.Compress(new(bytes.Buffer), b)
	return slices.Clone(out)
}

// sealed puts payload behind a header, and a right checksum.
func (s source) sealed(t testing.TB, payload []byte, count int32) batch.Batch {
	k := kmsg.RecordBatch{
		FirstOffset: s.base, Length: int32(49 + len(payload)), PartitionLeaderEpoch: 7, Magic: 2, Attributes: s.attributes | int16(s.codec),
		LastOffsetDelta: s.last, FirstTimestamp: s.first, MaxTimestamp: s.newest, ProducerID: 4711, ProducerEpoch: 3, FirstSequence: 99,
		NumRecords: count, Records: payload,
	}
	wire := k.AppendTo(nil)
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	views, tail, err := batch.Scan(nil, nil, wire)
	if err != nil || tail != 0 || len(views) != 1 {
		t.Fatalf("scan: %d batches, tail %d, %v", len(views), tail, err)
	}
	return views[0]
}

func (s source) batch(t testing.TB) batch.Batch {
	return s.sealed(t, packed(t, s.codec, rawRecords(s.recs, s.base, s.first)), int32(len(s.recs)))
}

// read decodes a batch with kgo.
func read(b batch.Batch) ([]rec, error) {
	p := kmsg.FetchResponseTopicPartition{RecordBatches: b.Bytes(), HighWatermark: 1 << 62}
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &p, kgo.DefaultDecompressor(), nil)
	var recs []rec
	for _, r := range got.Records {
		recs = append(recs, rec{Offset: r.Offset, Time: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value, Headers: r.Headers})
	}
	return recs, got.Err
}

// check holds what came out against what has to: recs, with their source offsets.
func check(t testing.TB, outs []Out, want []rec, s source, o Options) {
	t.Helper()
	codec := choose(s.codec, o.Avoid)
	for i, out := range outs {
		b := out.Batch
		got, err := read(b)
		if err != nil || b.Verify() != nil || len(got) == 0 || len(got) > len(want) {
			t.Fatalf("out %d: %d records of %d, %v, %v", i, len(got), len(want), err, b.Verify())
		}
		n, newest, mapped := int32(len(got)), int64(-1), int32(0)
		for _, r := range out.Runs {
			for j := range r.N {
				if at := r.Delta + j; at != mapped || want[at].Offset != r.Src+int64(j) {
					t.Fatalf("out %d: runs %+v, record %d is at source offset %d", i, out.Runs, at, want[at].Offset)
				}
				mapped++
			}
		}
		for k := 1; k < len(out.Runs); k++ {
			if last := out.Runs[k-1]; last.Src+int64(last.N) == out.Runs[k].Src {
				t.Fatalf("out %d: runs %+v could be fewer", i, out.Runs)
			}
		}
		for k, w := range want[:n] {
			w.Offset = int64(k)
			newest = max(newest, w.Time)
			if d := cmp.Diff(w, got[k]); d != "" {
				t.Fatalf("out %d record %d: %s", i, k, d)
			}
		}
		type header struct {
			Base, Newest, PID           int64
			Epoch, Seq, Last, N, Mapped int32
			Codec                       batch.Codec
			Bits, PEpoch                int16
		}
		g := header{b.BaseOffset(), b.MaxTimestamp(), b.ProducerID(), b.LeaderEpoch(), b.BaseSequence(), b.LastOffsetDelta(), b.Count(), mapped, b.Codec(), b.Attributes() &^ 7, b.ProducerEpoch()}
		w := header{0, newest, -1, -1, -1, n - 1, n, n, codec, 0, -1}
		if g != w {
			t.Fatalf("out %d: header %+v, want %+v", i, g, w)
		}
		if o.MaxBytes > 0 && b.Size() > o.MaxBytes {
			t.Fatalf("out %d has %d bytes, at most %d", i, b.Size(), o.MaxBytes)
		}
		want = want[n:]
	}
	if len(want) > 0 {
		t.Fatalf("%d records are missing, from offset %d on", len(want), want[0].Offset)
	}
}

func release(outs []Out) {
	for _, o := range outs {
		o.Batch.Release()
	}
}

// Whatever a batch looks like and whatever is asked: the records that stay come out equal, dense, with exact runs, and as the same bytes again.
func TestRewrite(t *testing.T) {
	pool := batch.NewPool(64 << 20)
	used := NewCoder(pool, 4<<20) // by all cases, so that nothing of one may leak into the next
	rapid.Check(t, func(rt *rapid.T) {
		s := source{
			codec: rapid.SampledFrom(allCodecs).Draw(rt, "codec"), base: rapid.Int64Range(0, 1<<40).Draw(rt, "base"),
			first: rapid.SampledFrom([]int64{-1, 0, 1_700_000_000_000}).Draw(rt, "first"),
		}
		for _, bit := range []int16{0x08, 0x10, 0x40} {
			if rapid.Bool().Draw(rt, fmt.Sprintf("bit %#x", bit)) {
				s.attributes |= bit
			}
		}
		bytesOrNil := rapid.OneOf(rapid.Just[[]byte](nil), rapid.SliceOfN(rapid.Byte(), 0, 300))
		offset := s.base
		for range rapid.IntRange(1, 40).Draw(rt, "records") {
			offset += rapid.SampledFrom([]int64{0, 0, 0, 1, 70, 9000}).Draw(rt, "gap")
			r := rec{Offset: offset, Time: s.first + rapid.SampledFrom([]int64{0, 1, 100, -5, 1 << 35, -1 << 35}).Draw(rt, "time"), Key: bytesOrNil.Draw(rt, "key"), Value: bytesOrNil.Draw(rt, "value")}
			for range rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "headers") {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: rapid.StringN(0, 9, -1).Draw(rt, "name"), Value: bytesOrNil.Draw(rt, "header")})
			}
			s.recs = append(s.recs, r)
			offset++
		}
		s.last = int32(offset - 1 - s.base + rapid.SampledFrom([]int64{0, 3}).Draw(rt, "tail"))
		s.newest = s.first + 1<<36
		o := Options{
			From: s.base + rapid.SampledFrom([]int64{-1, 0, 1, 80, int64(s.last), int64(s.last) + 1}).Draw(rt, "from"), KeepAppendTime: rapid.Bool().Draw(rt, "keep"),
			Avoid: rapid.SampledFrom([]uint8{0, 0, 1 << 4, 1<<4 | 1<<3, 1<<1 | 1<<2 | 1<<3 | 1<<4}).Draw(rt, "avoid"), MaxBytes: rapid.SampledFrom([]int{0, 0, 200, 600, 1500}).Draw(rt, "max"),
		}
		in := s.batch(t)
		before := bytes.Clone(in.Bytes())
		outs, err := used.Rewrite(in, o)
		defer release(outs)
		if !bytes.Equal(before, in.Bytes()) {
			rt.Fatal("the source's bytes were changed")
		}
		var want []rec
		largest := 0
		for _, r := range s.recs {
			if r.Offset < o.From {
				continue
			}
			if o.KeepAppendTime && s.attributes&0x08 != 0 {
				r.Time = s.newest
			}
			want = append(want, r)
			largest = max(largest, batch.HeaderSize+len(rawRecords([]rec{r}, r.Offset, r.Time)))
		}
		if errors.Is(err, ErrTooLarge) {
			if o.MaxBytes == 0 || largest+64 < o.MaxBytes { // what compressing adds at most
				rt.Fatalf("%v, the largest record has %d bytes", err, largest)
			}
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		check(t, outs, want, s, o)
		again, err := NewCoder(pool, 4<<20).Rewrite(in, o)
		defer release(again)
		if err != nil || len(again) != len(outs) {
			rt.Fatalf("again: %d outs, were %d, %v", len(again), len(outs), err)
		}
		for i := range again {
			if !bytes.Equal(again[i].Batch.Bytes(), outs[i].Batch.Bytes()) {
				rt.Fatalf("out %d has other bytes the second time", i)
			}
		}
	})
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes were not released: %v", n, pool.Open())
	}
}

// numbered is a batch of n records without gaps.
func numbered(codec batch.Codec, n int) source {
	s := source{codec: codec, base: 1000, last: int32(n - 1), first: 1_700_000_000_000, newest: 1_700_000_000_000 + int64(n)}
	for i := range n {
		s.recs = append(s.recs, rec{Offset: 1000 + int64(i), Time: s.first + int64(i), Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value %d of a record that has some length %d", i, i*i)})
	}
	return s
}

func TestSplitIsBounded(t *testing.T) {
	pool := batch.NewPool(0)
	c := NewCoder(pool, 4<<20)
	for _, codec := range allCodecs {
		s := numbered(codec, 1000)
		in := s.batch(t)
		o := Options{MaxBytes: in.Size() / 3}
		outs, err := c.Rewrite(in, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(outs) < 3 || len(outs) > 8 {
			t.Errorf("%s: %d parts of a batch that is three times as large as may be", codec, len(outs))
		}
		check(t, outs, s.recs, s, o)
		release(outs)
	}
}

func TestRefused(t *testing.T) {
	pool := batch.NewPool(0)
	c := NewCoder(pool, 1<<20)
	good := numbered(batch.None, 3)
	raw := rawRecords(good.recs, good.base, good.first)
	flipped := good.batch(t)
	flipped.Bytes()[70] ^= 1
	unknown := good
	unknown.codec = 6
	control := good
	control.attributes = 0x20
	twice := slices.Clone(good.recs)
	twice[2].Offset = twice[1].Offset
	behind := good
	behind.last = 1
	for _, tc := range []struct {
		name string
		in   batch.Batch
		o    Options
		want error
	}{
		{"checksum", flipped, Options{}, batch.ErrCRC},
		{"codec 6", unknown.sealed(t, raw, 3), Options{}, ErrCodec},
		{"control", control.batch(t), Options{}, ErrRecords},
		{"count too small", good.sealed(t, raw, 2), Options{}, ErrRecords},
		{"count too large", good.sealed(t, raw, 4), Options{}, ErrRecords},
		{"count below 0", good.sealed(t, raw, -1), Options{}, ErrRecords},
		{"cut off", good.sealed(t, raw[:len(raw)-1], 3), Options{}, ErrRecords},
		{"offset twice", good.sealed(t, rawRecords(twice, good.base, good.first), 3), Options{}, ErrRecords},
		{"offset behind the last", behind.batch(t), Options{}, ErrRecords},
		{"one record", good.batch(t), Options{MaxBytes: 80}, ErrTooLarge},
	} {
		outs, err := c.Rewrite(tc.in, tc.o)
		if !errors.Is(err, tc.want) || outs != nil {
			t.Errorf("%s: %d outs, %v; want %v", tc.name, len(outs), err, tc.want)
		}
	}
	for _, codec := range allCodecs[1:] {
		s := good
		s.codec = codec
		if _, err := c.Rewrite(s.sealed(t, []byte("no such thing, no such thing"), 3), Options{}); !errors.Is(err, ErrRecords) && !errors.Is(err, ErrDecoded) {
			t.Errorf("garbage as %s: %v", codec, err)
		}
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d bytes were not released", n)
	}
}

// A bomb ends at the limit in each codec, and what just fits passes.
func TestLimitForDecoding(t *testing.T) {
	for _, codec := range allCodecs {
		s := source{codec: codec, first: 1, recs: []rec{{Time: 1, Value: make([]byte, 3<<20)}}}
		in := s.batch(t)
		size := len(rawRecords(s.recs, 0, 1))
		pool := batch.NewPool(0)
		outs, err := NewCoder(pool, size).Rewrite(in, Options{})
		if err != nil || len(outs) != 1 {
			t.Errorf("%s: %d outs with a limit of what it holds, %v", codec, len(outs), err)
		}
		release(outs)
		if _, err := NewCoder(pool, size-1).Rewrite(in, Options{}); !errors.Is(err, ErrDecoded) {
			t.Errorf("%s: %v with a byte less, want ErrDecoded", codec, err)
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("%s: %d bytes were not released", codec, n)
		}
	}
}

// A zstd frame that does not say how much is in it, as the Java client writes them, is decoded whatever room was tried first. Damage
// in it is told from too little room.
func TestZstdWithoutSize(t *testing.T) {
	var frame bytes.Buffer
	w, err := zstd.NewWriter(&frame, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for n := 10; n < 1<<20; n = n*3/2 + 1 {
		s := source{codec: batch.Zstd, first: 1, recs: []rec{{Time: 1, Value: bytes.Repeat([]byte("of many characters, 0123456789"), n/30+1)[:n]}}}
		raw := rawRecords(s.recs, 0, 1)
		frame.Reset()
		w.Reset(&frame)
		for part := range slices.Chunk(raw, len(raw)/2+1) {
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil { // without it a short frame says its size
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var head zstd.Header
		if err := head.Decode(frame.Bytes()); err != nil || head.HasFCS {
			t.Fatalf("%d bytes: the frame says its size, or %v", n, err)
		}
		in := s.sealed(t, slices.Clone(frame.Bytes()), 1)
		pool := batch.NewPool(0)
		for _, limit := range []int{4 << 20, len(raw)} { // with the least room that is enough, too
			outs, err := NewCoder(pool, limit).Rewrite(in, Options{})
			if err != nil {
				t.Fatalf("%d bytes in %d, limit %d: %v", n, frame.Len(), limit, err)
			}
			check(t, outs, s.recs, s, Options{})
			release(outs)
		}
		if _, err := NewCoder(pool, len(raw)-1).Rewrite(in, Options{}); !errors.Is(err, ErrDecoded) {
			t.Errorf("%d bytes with a byte less: %v, want ErrDecoded", n, err)
		}
		damaged := slices.Clone(frame.Bytes())
		damaged[len(damaged)-5] ^= 0xff
		if _, err := NewCoder(pool, 4<<20).Rewrite(s.sealed(t, damaged, 1), Options{}); !errors.Is(err, ErrRecords) {
			t.Errorf("%d bytes, damaged: %v, want ErrRecords", n, err)
		}
	}
}

// Xerial's framing, as Java writes snappy, is read as well as the plain one, which kgo writes.
func TestSnappyFramings(t *testing.T) {
	s := numbered(batch.Snappy, 2000) // more than a block
	raw := rawRecords(s.recs, s.base, s.first)
	framed := snappy(make([]byte, 0, 2*len(raw)), raw)
	if !bytes.Equal(framed[:16], []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}) {
		t.Fatalf("frame %q", framed[:16])
	}
	c := NewCoder(batch.NewPool(0), 4<<20)
	for _, payload := range [][]byte{framed, packed(t, batch.Snappy, raw)} {
		outs, err := c.Rewrite(s.sealed(t, payload, 2000), Options{})
		if err != nil {
			t.Fatal(err)
		}
		check(t, outs, s.recs, s, Options{})
		release(outs)
	}
}

// FuzzRewrite feeds what a hostile writer may store: nothing panics, nothing leaks, and what passes is what kgo reads.
func FuzzRewrite(f *testing.F) {
	for _, codec := range allCodecs {
		s := numbered(codec, 5)
		f.Add(s.batch(f).Payload(), int16(codec), int32(5), int32(4), uint8(0), uint16(0), uint8(0))
		f.Add(s.batch(f).Payload(), int16(codec)|0x48, int32(5), int32(9), uint8(2), uint16(120), uint8(1<<4))
	}
	f.Fuzz(func(t *testing.T, payload []byte, attributes int16, count, last int32, from uint8, most uint16, avoid uint8) {
		if last < 0 {
			return // Scan refuses it
		}
		pool := batch.NewPool(0)
		// Without LogAppendTime, whose times the copy does not keep, and the free bit 7, that kgo has a use of its own for.
		s := source{codec: batch.Codec(attributes & 7), attributes: attributes &^ 7 &^ 0x88, base: 1000, last: last, first: 1_700_000_000_000, newest: 1_700_000_000_001}
		in := s.sealed(t, payload, count)
		o := Options{From: 1000 + int64(from), MaxBytes: int(most), Avoid: avoid}
		outs, err := NewCoder(pool, 1<<20).Rewrite(in, o)
		if err == nil {
			want, err := read(in)
			if err != nil {
				t.Fatalf("kgo refuses: %v", err)
			}
			want = slices.DeleteFunc(want, func(r rec) bool { return r.Offset < o.From })
			var got []rec
			for _, out := range outs {
				part, err := read(out.Batch)
				if err != nil {
					t.Fatalf("kgo refuses what came out: %v", err)
				}
				for i := range part {
					part[i].Offset = 0
				}
				got = append(got, part...)
			}
			for i := range want {
				want[i].Offset = 0
			}
			if d := cmp.Diff(want, got); d != "" && len(want)+len(got) > 0 {
				t.Fatal(d)
			}
		}
		release(outs)
		if n := pool.InUse(); n != 0 {
			t.Fatalf("%d bytes were not released", n)
		}
	})
}
