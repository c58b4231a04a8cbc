package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
	"kferry/pipeline/kafkatest"
)

// limit sets a client quota for a client id, until the test's end.
func limit(t *testing.T, k *kafkatest.Kafka, id, key string, value float64) {
	t.Helper()
	adm := adminOf(t, k)
	alter := func(ctx context.Context, op kadm.AlterClientQuotaOp) error {
		altered, err := adm.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}}, Ops: []kadm.AlterClientQuotaOp{op}}})
		for _, a := range altered {
			if err == nil {
				err = a.Err
			}
		}
		return err
	}
	if err := alter(t.Context(), kadm.AlterClientQuotaOp{Key: key, Value: value}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := alter(context.WithoutCancel(t.Context()), kadm.AlterClientQuotaOp{Key: key, Remove: true}); err != nil {
			t.Errorf("take %s of %s away: %v", key, id, err)
		}
	})
}

// fillRandom writes records of 10,000 bytes that no codec shrinks.
func fillRandom(t *testing.T, k *kafkatest.Kafka, topic string, records int) {
	t.Helper()
	cl := client(t, k, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	random := rand.NewChaCha8([32]byte{7})
	for range records {
		value := make([]byte, 10_000)
		random.Read(value) //nolint:errcheck // never fails
		cl.Produce(t.Context(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// words is a log that a test reads.
type words struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *words) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// sum adds up a metric over its labels.
func sum(t *testing.T, p *pipeline.Pipeline, metric string) (total float64) {
	t.Helper()
	var b strings.Builder
	p.WriteMetrics(&b)
	for line := range strings.Lines(b.String()) {
		if name, rest, ok := strings.Cut(line, "{"); ok && name == metric {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' '):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			total += v
		}
	}
	return total
}

// Under a quota a job takes the time that the quota gives it and little more, on the connections it began with. It is not over
// before all is copied, and while it is mute it shows that it is behind.
func TestQuotas(t *testing.T) {
	const (
		rate    = 2e6 // bytes/s
		records = 4000
		least   = 0.85
	)
	from, to := east(t), west(t)
	for _, test := range []struct{ name, key, metric string }{
		{"source", "consumer_byte_rate", "kferry_fetch_throttle_milliseconds_total"},
		{"target", "producer_byte_rate", "kferry_produce_throttle_milliseconds_total"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			topic := "quota-" + test.name
			create(t, from, topic, 4)
			fillRandom(t, from, topic, records)
			cfg := config(from, to, topic, topic)
			for a, c := range cfg.Clusters {
				c.ClientID = topic
				cfg.Clusters[a] = c
			}
			k := from
			if test.name == "target" {
				k = to
			}
			limit(t, k, topic, test.key, rate)

			said := new(words)
			p, err := pipeline.New(cfg, pipeline.Options{UntilCaughtUp: true}, slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			waitFor(t, "the first record", func() bool { return sum(t, p, "kferry_records_total") > 0 })
			begun := time.Now()
			waitFor(t, "a mute", func() bool { return sum(t, p, test.metric) > 0 })
			if behind := sum(t, p, "kferry_lag_records"); behind == 0 {
				t.Error("mute, and no lag is shown")
			}
			if err := <-ended; err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			took := time.Since(begun)
			mute := sum(t, p, test.metric)
			t.Logf("%.0f MB in %.1f s: %.2f of the quota; mute for %.1f s of connections", records*10_000/1e6, took.Seconds(), records*10_000/took.Seconds()/rate, mute/1000)
			if got := records * 10_000 / took.Seconds(); got < least*rate {
				t.Errorf("%.0f bytes/s, the quota is %.0f", got, rate)
			}
			if s := said.String(); strings.Contains(s, "broke") || strings.Contains(s, "does not answer") {
				t.Errorf("a mute is taken for trouble:\n%s", s)
			}
			sameBytes(t, from, topic, to, fmt.Sprint(alias(cfg), ".", topic), 4)
		})
	}
}
