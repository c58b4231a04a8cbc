package kafkatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// batchOf is one batch of a log that the cleaner is to go over.
type batchOf struct {
	producer string // its name; empty: without a producer id
	keys     string // one a word; with a dash in front it is a tombstone
}

// Holes makes a log that the cleaner went over: one batch lost a record in its middle, one its last, one its first, one all
// and left only its header, one all and left nothing.
func Holes(ctx context.Context, k *Kafka, topic string) error {
	return compacted(ctx, k, topic, []batchOf{
		{"a", "1 gone2 3 4"},
		{"a", "5 6 gone7"},
		{"a", "gone8 9 10"},
		{"", "gone11 gone12"},
		{"b", "gone13 gone14"}, // its producer's last, whose sequence the header keeps
		{"a", "gone2 gone7 gone8 gone11 gone12 gone13 gone14"},
	}, [][3]int64{{0, 3, 3}, {4, 6, 2}, {7, 9, 2}, {12, 13, 0}, {14, 20, 7}})
}

// Emptied makes a log that lost whole batches to the cleaner: of one the header is left, of one nothing. No batch has a hole.
func Emptied(ctx context.Context, k *Kafka, topic string) error {
	return compacted(ctx, k, topic, []batchOf{
		{"a", "1 2"},
		{"", "gone3 gone4"},
		{"b", "gone5 gone6"},
		{"a", "7 -8"},
		{"a", "gone3 gone4 gone5 gone6"},
	}, [][3]int64{{0, 1, 2}, {4, 5, 0}, {6, 7, 2}, {8, 11, 4}})
}

// DeleteHorizons makes a log whose batches say when their tombstones may go (KIP-534), in place of their base timestamp. No
// batch has a hole. Kafka 3.1 or later.
func DeleteHorizons(ctx context.Context, k *Kafka, topic string) error {
	l := compactedLog(ctx, k, topic, []batchOf{{"a", "1 -2 3"}, {"", "-4"}})
	l.until("delete horizons", func(heads []Head) bool {
		return len(heads) == 3 && heads[0].Attributes&heads[1].Attributes&DeleteHorizon != 0 && heads[0].Count == 3
	})
	return l.close()
}

// compacted returns when the cleaner has left these batches, each as first offset, last offset and count, and the one that
// rolled the segment.
func compacted(ctx context.Context, k *Kafka, topic string, batches []batchOf, want [][3]int64) error {
	l := compactedLog(ctx, k, topic, batches)
	l.until("the cleaner", func(heads []Head) bool {
		var got [][3]int64
		for _, h := range heads {
			got = append(got, [3]int64{h.Offset, h.LastOffset, int64(h.Count)})
		}
		return len(got) == len(want)+1 && slices.Equal(got[:len(want)], want)
	})
	return l.close()
}

// compactedLog writes the batches, and one that rolls the segment: the cleaner does not touch the last one.
func compactedLog(ctx context.Context, k *Kafka, topic string, batches []batchOf) *oddLog {
	l := newOddLog(ctx, k, topic, map[string]string{
		"cleanup.policy":            "compact",
		"segment.ms":                "600000", // of the records' time, not of ours
		"min.cleanable.dirty.ratio": "0.01",
	})
	for i, b := range batches {
		var records []*kgo.Record
		for key := range strings.FieldsSeq(b.keys) {
			r := &kgo.Record{Key: []byte(strings.TrimPrefix(key, "-"))}
			if key[0] != '-' {
				r.Value = fmt.Appendf(nil, "%s of batch %d", key, i)
			}
			records = append(records, r)
		}
		l.append(b.producer, records)
	}
	l.at = l.at.Add(30 * time.Minute)
	l.append("a", []*kgo.Record{{Key: []byte("roll"), Value: []byte("the segment")}})
	return l
}
