package pipeline

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

// items are batches of a log as a cursor gives them, without a cluster.
func items(bs ...batch.Batch) []logItem {
	var out []logItem
	for _, b := range bs {
		out = append(out, logItem{Batch: b})
	}
	return out
}

// walked compares two logs that lie in memory.
func walked(t *testing.T, sum bool, src, dst []logItem) *walk {
	t.Helper()
	var done atomic.Int64
	l := &Link{cfg: DefaultLink("east", "west")}
	w := newWalk(l, stretch{target: "east.t", srcNext: src[len(src)-1].NextOffset(), dstNext: dst[len(dst)-1].NextOffset()}, sum, &done)
	w.pair.key.Topic = "t"
	w.src.items, w.dst.items = src, dst
	for more, err := true, error(nil); ; {
		if more, err = w.step(context.Background()); err != nil || !more {
			w.settle(err)
			return w
		}
	}
}

func TestWalkNamesDamage(t *testing.T) {
	f := forge(t, 3)
	raw := slices.Clone(f.source[1].Bytes())
	raw[len(raw)-1] ^= 1
	broken, _, err := batch.Scan(nil, nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	sound, damaged := items(f.source...), items(f.source[0], broken[0], f.source[2])
	w := walked(t, true, damaged, sound)
	if len(w.differences) != 1 || w.differences[0].Kind != DiffDamaged || w.differences[0].SrcOffset != 10 || w.differences[0].DstOffset != -1 {
		t.Errorf("damaged source: got %v", w.differences)
	}
	w = walked(t, true, sound, damaged)
	if len(w.differences) != 1 || w.differences[0].Kind != DiffDamaged || w.differences[0].SrcOffset != -1 || w.differences[0].DstOffset != 10 {
		t.Errorf("damaged target: got %v", w.differences)
	}
	if w = walked(t, false, sound, damaged); len(w.differences) != 0 || w.records != 30 {
		t.Errorf("stored checksums are to be trusted: got %v", w.differences)
	}
}

func TestWalkDoesNotBlameCompaction(t *testing.T) {
	f := forge(t, 3)
	src, dst := items(f.source...), items(f.source[0], f.source[2])
	dst[1].gap = true
	w := walked(t, true, src, dst)
	want := []Span{{"t", 0, "compaction has removed records (on the target before or at offset 29), so the rest is not comparable; " +
		"the first mismatch is at t/0 to east.t, source offset 10, target offset 20: missing: the source's offsets 10 to 19 are not on the target"}}
	if d := cmp.Diff(want, w.uncompared); d != "" || len(w.differences) > 0 {
		t.Errorf("differences %v, uncompared %s", w.differences, d)
	}
	src, dst = items(f.source[0], f.source[2]), items(f.source[0], f.source[2])
	src[1].gap, dst[1].gap = true, true // gone before it was copied
	if w = walked(t, true, src, dst); len(w.uncompared)+len(w.differences) > 0 || w.records != 20 {
		t.Errorf("differences %v, uncompared %v, %d records", w.differences, w.uncompared, w.records)
	}
}

func TestWalkPassesAppendTimes(t *testing.T) {
	f := forge(t, 1)
	stamped := f.changed(f.source[0], func(raw []byte) {
		raw[rawAttributes+1] |= 1 << 3
		setTimes(raw, f.source[0].BaseTimestamp(), f.source[0].MaxTimestamp()+1e6)
	})
	if w := walked(t, true, items(stamped), items(f.source[0])); len(w.differences) != 0 || w.batches != 1 {
		t.Errorf("from append time: got %v", w.differences)
	}
	if w := walked(t, true, items(f.source[0]), items(stamped)); len(w.differences) != 0 || w.batches != 1 {
		t.Errorf("to append time: got %v", w.differences)
	}
}

// A header's newest time is checked, though brokers mend it: the records decide.
func TestWalkLooksBehindAWrongMaxTimestamp(t *testing.T) {
	f := forge(t, 1)
	wrong := f.changed(f.source[0], func(raw []byte) { setTimes(raw, f.source[0].BaseTimestamp(), f.source[0].MaxTimestamp()+1) })
	if w := walked(t, true, items(f.source[0]), items(wrong)); len(w.differences) != 0 || w.batches != 0 || w.byRecord != 10 {
		t.Errorf("differences %v, %d batches, %d by record", w.differences, w.batches, w.byRecord)
	}
}

func TestWalkForgetsOldPairs(t *testing.T) {
	w := new(walk)
	for i := range ringBatches + 10 {
		w.remember(paired{src: int64(i)})
	}
	if len(w.ring) != ringBatches || w.ringOld != 10 || w.ring[w.ringOld%ringBatches].src != 10 || w.ring[(w.ringed-1)%ringBatches].src != ringBatches+9 {
		t.Errorf("%d pairs, from %d to %d", len(w.ring), w.ringOld, w.ringed)
	}
}

func TestAbortedTxns(t *testing.T) {
	marker := func(pid int64, base int64, kind byte) batch.Batch {
		r := kmsg.Record{Key: []byte{0, 0, 0, kind}, Value: []byte{0, 0, 0, 0, 0, 0}}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		return rawBatch(t, base, pid, 0x30, r.AppendTo(nil))
	}
	data := func(pid int64, base int64) batch.Batch { return rawBatch(t, base, pid, 0x10, []byte{0}) }
	list := []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 6}, {ProducerID: 9, FirstOffset: 1}, {ProducerID: 7, FirstOffset: 0}}
	a := abortedData(list)
	for _, x := range []struct {
		b    batch.Batch
		want bool
	}{
		{data(7, 0), true}, {data(9, 1), true}, {data(8, 2), false}, {marker(7, 3, 0), false},
		{data(7, 4), false}, {marker(7, 5, 1), false}, {data(7, 6), true}, {data(9, 7), true},
		{marker(9, 8, 0), false}, {data(9, 9), false}, {data(7, 10), true}, {marker(7, 11, 0), false}, {data(7, 12), false},
	} {
		if got := a.drops(x.b); got != x.want {
			t.Errorf("offset %d of producer %d: got %v, want %v", x.b.BaseOffset(), x.b.ProducerID(), got, x.want)
		}
	}
}

func rawBatch(t *testing.T, base, pid int64, attributes int16, records []byte) batch.Batch {
	t.Helper()
	rb := kmsg.RecordBatch{FirstOffset: base, Magic: 2, Attributes: attributes, ProducerID: pid, NumRecords: 1, Records: records,
		Length: int32(batch.HeaderSize - 12 + len(records))}
	raw := rb.AppendTo(nil)
	reseal(raw)
	bs, tail, err := batch.Scan(nil, nil, raw)
	if err != nil || tail != 0 || len(bs) != 1 {
		t.Fatalf("scan: %d batches, %d bytes behind: %v", len(bs), tail, err)
	}
	return bs[0]
}

func TestUnlike(t *testing.T) {
	base := kgo.Record{Key: []byte("k"), Value: []byte("value"), Headers: []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "h", Value: []byte{}}}}
	f := func(edit func(*kgo.Record), want string) {
		t.Helper()
		other := base
		other.Headers = slices.Clone(base.Headers)
		edit(&other)
		if got := unlike(&base, &other, false); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	f(func(*kgo.Record) {}, "")
	f(func(r *kgo.Record) { r.Key = nil }, "the key is 1 bytes on the source, null on the target")
	f(func(r *kgo.Record) { r.Key = []byte{} }, "the key has 1 bytes on the source, 0 bytes on the target, and differs from byte 0 on")
	f(func(r *kgo.Record) { r.Value = []byte("vague") }, "the value has 5 bytes on the source, 5 bytes on the target, and differs from byte 2 on")
	f(func(r *kgo.Record) { r.Headers = r.Headers[:1] }, "the source's record has 2 headers, the target's 1")
	f(func(r *kgo.Record) { r.Headers[0].Value = []byte{} }, "the value of header 0 is null on the source, 0 bytes on the target")
	f(func(r *kgo.Record) { r.Headers[1].Key = "i" }, "the key of header 1 has 1 bytes on the source, 1 bytes on the target, and differs from byte 0 on")
	f(func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(1e6) }, "the timestamp is -62135596800000 ms on the source, -62135596799999 on the target")
}
