package batch

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestControlType(t *testing.T) {
	f := func(raw kmsg.RecordBatch, want Marker, wantOK bool, what string) {
		t.Helper()
		if got, ok := scanned(t, sealed(raw)).ControlType(); got != want || ok != wantOK {
			t.Errorf("%s: %s, %t; want %s, %t", what, got, ok, want, wantOK)
		}
	}
	f(marker(0), Abort, true, "abort")
	f(marker(1), Commit, true, "commit")
	f(marker(2), 0, false, "leader change")
	f(marker(-1), 0, false, "negative type")
	f(marker(256), 0, false, "type whose low byte is abort's")

	with := func(change func(*kmsg.RecordBatch)) kmsg.RecordBatch {
		raw := marker(1)
		change(&raw)
		return raw
	}
	record := func(key []byte) []byte {
		r := kmsg.Record{TimestampDelta64: -1 << 40, OffsetDelta: 1 << 20, Key: key}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		return r.AppendTo(nil)
	}
	f(with(func(b *kmsg.RecordBatch) { b.Records = record([]byte{0, 0, 0, 1}) }), Commit, true, "long deltas")
	f(with(func(b *kmsg.RecordBatch) { b.Records = record([]byte{0, 9, 0, 0, 1, 2, 3}) }), Abort, true, "a later version, which may only add to the key")
	f(with(func(b *kmsg.RecordBatch) { b.Records = record([]byte{0xff, 0xff, 0, 0}) }), 0, false, "negative version")
	f(with(func(b *kmsg.RecordBatch) { b.Records = record([]byte{0, 0, 0}) }), 0, false, "key too short")
	f(with(func(b *kmsg.RecordBatch) { b.Records = record(nil) }), 0, false, "null key")
	f(with(func(b *kmsg.RecordBatch) { b.Attributes &^= bitControl }), 0, false, "no control batch")
	f(with(func(b *kmsg.RecordBatch) { b.Attributes |= int16(Zstd) }), 0, false, "compressed")
	f(with(func(b *kmsg.RecordBatch) { b.NumRecords = 2 }), 0, false, "two records")
	f(with(func(b *kmsg.RecordBatch) { b.NumRecords = 0 }), 0, false, "no record")
	f(with(func(b *kmsg.RecordBatch) { b.Records = []byte{0} }), 0, false, "a record of no bytes")
	f(with(func(b *kmsg.RecordBatch) { b.Records = []byte{1, 0, 0, 0, 0, 0, 0} }), 0, false, "negative length")
	f(with(func(b *kmsg.RecordBatch) { b.Records = append([]byte{60, 0}, bytes.Repeat([]byte{0xff}, 30)...) }), 0, false, "a varint without an end")
}

// TestControlTypeEveryPrefix cuts the record short: nothing is read past its end, and no marker is made out of half of one.
func TestControlTypeEveryPrefix(t *testing.T) {
	whole := marker(1).Records
	for n := range len(whole) {
		raw := marker(1)
		raw.Records = whole[:n]
		if kind, ok := scanned(t, sealed(raw)).ControlType(); ok {
			t.Errorf("%d of %d bytes: %s", n, len(whole), kind)
		}
	}
}
