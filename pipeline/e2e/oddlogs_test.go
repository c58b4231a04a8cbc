package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kferry/pipeline/kafkatest"
)

// TestOddLogs copies from every version what compaction, transactions, DeleteRecords and old brokers leave in a log: it
// arrives as the source's own consumer sees it.
func TestOddLogs(t *testing.T) {
	type maker func(context.Context, *kafkatest.Kafka, string) error
	format := func(version string) maker {
		return func(ctx context.Context, k *kafkatest.Kafka, topic string) error {
			return kafkatest.OldFormat(ctx, k, topic, version)
		}
	}
	arrive := map[string]maker{
		"emptied":      kafkatest.Emptied,
		"transactions": kafkatest.Transactions,
		"cut":          kafkatest.CutInside,
		"holes":        kafkatest.Holes,
		"stamped":      kafkatest.AppendTimes,
	}
	horizons := map[string]maker{"horizons": kafkatest.DeleteHorizons}
	formats := map[string]maker{"format0": format(kafkatest.Format0), "format1": format(kafkatest.Format1), "mixed": kafkatest.MixedFormats}
	for _, c := range []struct {
		name string
		from func(*testing.T) *kafkatest.Kafka
		also map[string]maker
	}{
		{"28", oldest, formats},
		{"39", old, horizons},
		{"44", east, horizons},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := c.from(t), west(t)
			link := name("odd", c.name)
			topic := func(shape string) string { return link + "." + shape }
			var shapes []string
			var endHanging func(context.Context, kgo.TransactionEndTry) error
			g, ctx := errgroup.WithContext(t.Context())
			make := func(shape string, m maker) {
				g.Go(func() error { return m(ctx, from, topic(shape)) })
				shapes = append(shapes, shape)
			}
			make("hanging", func(_ context.Context, k *kafkatest.Kafka, topic string) (err error) {
				endHanging, err = kafkatest.HangingTransaction(t.Context(), k, topic)
				return err
			})
			for shape, m := range arrive {
				make(shape, m)
			}
			for shape, m := range c.also {
				make(shape, m)
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}

			cfg := config(from, to, link, link+"[.].*")
			for _, shape := range []string{"emptied", "holes", "horizons"} {
				if slices.Contains(shapes, shape) { // the target's own cleaner would set horizons too
					create(t, to, alias(cfg)+"."+topic(shape), 1)
				}
			}
			l := start(t, cfg)
			at := func(shape string, offset int64) {
				t.Helper()
				waitFor(t, topic(shape)+" to be copied", func() bool { return l.lane(topic(shape), 0).SrcOffset == offset })
			}
			at("hanging", 2)
			if err := endHanging(t.Context(), kgo.TryAbort); err != nil {
				t.Fatal(err)
			}
			var here, there []string
			for _, shape := range shapes {
				at(shape, ends(t, from, topic(shape))[0])
				here, there = append(here, topic(shape)), append(there, alias(cfg)+"."+topic(shape))
			}
			l.stop()

			want, err := kafkatest.ReadJava(t.Context(), from, here...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := kafkatest.ReadJavaWith(t.Context(), to, map[string]string{"isolation.level": "read_uncommitted"}, there...)
			if err != nil {
				t.Fatal(err)
			}
			for i, shape := range shapes {
				want, got := kafkatest.Of(here[i], want), kafkatest.Of(there[i], got)
				if shape == "stamped" { // the copy has the producer's times
					untimed(want)
					untimed(got)
				}
				if d := kafkatest.Diff(want, got); d != "" || len(want) == 0 {
					t.Errorf("%s: %d records; %s", shape, len(want), d)
				}
				for _, h := range heads(t, to, there[i], 0) {
					if h.Attributes&^kafkatest.CodecBits != 0 {
						t.Errorf("%s: the target's batch at %d has attributes %#x", shape, h.Offset, h.Attributes)
					}
				}
			}
		})
	}
}

// untimed takes the timestamps off.
func untimed(records []kafkatest.Record) {
	for i := range records {
		records[i].Timestamp = 0
	}
}
