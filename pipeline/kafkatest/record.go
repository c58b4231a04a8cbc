package kafkatest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Record is one record as a Java client wrote or read it. Nil is Kafka's null, which an empty slice is not. The JSON
// form, base64 for bytes, is what the Java programs speak.
type Record struct {
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"` // set by Read only
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []Header `json:"headers"`       // in order, keys may repeat
	Timestamp     int64    `json:"timestamp"`     // milliseconds
	TimestampType string   `json:"timestampType"` // CreateTime or LogAppendTime; set by Read only
}

// Header is one header of a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Of selects one topic's records, in their order.
func Of(topic string, records []Record) []Record {
	var of []Record
	for _, r := range records {
		if r.Topic == topic {
			of = append(of, r)
		}
	}
	return of
}

// Diff compares two topics' records: for each partition the same sequence of key, value, headers and timestamp. It names
// the first difference, or returns "". Topic names and offsets may differ, and the order between partitions.
func Diff(want, got []Record) string {
	w, g := byPartition(want), byPartition(got)
	both := maps.Clone(w)
	maps.Copy(both, g)
	for _, p := range slices.Sorted(maps.Keys(both)) {
		for i := range max(len(w[p]), len(g[p])) {
			switch {
			case i >= len(g[p]):
				return fmt.Sprintf("partition %d: %d records, want %d; the first missing is %v", p, len(g[p]), len(w[p]), w[p][i])
			case i >= len(w[p]):
				return fmt.Sprintf("partition %d: %d records, want %d; the first surplus is %v", p, len(g[p]), len(w[p]), g[p][i])
			}
			if what := w[p][i].diff(g[p][i]); what != "" {
				return fmt.Sprintf("partition %d, record %d: %s: got %v, want %v", p, i, what, g[p][i], w[p][i])
			}
		}
	}
	return ""
}

func byPartition(records []Record) map[int32][]Record {
	m := map[int32][]Record{}
	for _, r := range records {
		m[r.Partition] = append(m[r.Partition], r)
	}
	return m
}

func (r Record) diff(o Record) string {
	switch {
	case !same(r.Key, o.Key):
		return "the key differs"
	case !same(r.Value, o.Value):
		return "the value differs"
	case r.Timestamp != o.Timestamp:
		return "the timestamp differs"
	case !slices.EqualFunc(r.Headers, o.Headers, func(a, b Header) bool { return a.Key == b.Key && same(a.Value, b.Value) }):
		return "the headers differ"
	}
	return ""
}

// same is bytes.Equal that tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// String shows a record on one short line, whatever its size.
func (r Record) String() string {
	s := fmt.Sprintf("{%s/%d@%d key %s value %s ts %d", r.Topic, r.Partition, r.Offset, brief(r.Key), brief(r.Value), r.Timestamp)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %.40q=%s", h.Key, brief(h.Value))
	}
	return s + "}"
}

func brief(b []byte) string {
	const shown = 24
	switch {
	case b == nil:
		return "null"
	case len(b) > shown:
		return fmt.Sprintf("%q… (%d bytes)", b[:shown], len(b))
	}
	return fmt.Sprintf("%q", b)
}
