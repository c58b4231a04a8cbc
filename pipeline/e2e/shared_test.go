package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

// TestSharedReading copies one topic to three targets: the source serves its bytes once. A target that stops leaves the others
// alone and memory in its bounds; when it is back it catches up, and is read together with the others again.
func TestSharedReading(t *testing.T) {
	from, one, two := east(t), old(t), west(t)
	create(t, from, "shared", lanes)
	cfg := config(from, one, "shared", "shared")
	for alias, bootstrap := range map[string][]string{"sharedsrc": from.BootstrapOn(kafkatest.Proxied), "shareddst2": two.Bootstrap(), "shareddst3": two.BootstrapOn(kafkatest.Proxied)} {
		cfg.Clusters[alias] = cluster.Config{Alias: alias, Bootstrap: bootstrap}
	}
	between(&cfg, "sharedsrc", "shareddst2", "shared")
	between(&cfg, "sharedsrc", "shareddst3", "shared")
	cfg.Links[2].Naming = partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"shared": "shared-third"}}

	var total int64
	write := func(bytes int) {
		cl := client(t, from, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		value := make([]byte, 10_000)
		for i := range value {
			value[i] = byte(rand.Uint32())
		}
		for i := range bytes / len(value) {
			cl.Produce(t.Context(), &kgo.Record{Topic: "shared", Partition: int32(i) % lanes, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
			total++
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// served is how often the source served the bytes that were written since, by the bytes that came from it.
	served := func(bytes int, f func()) float64 {
		before := from.Proxy.Answers.Forwarded()
		f()
		return float64(from.Proxy.Answers.Forwarded()-before) / float64(bytes)
	}
	once := func(what string, times float64) {
		t.Helper()
		t.Logf("%s: served %.2f times", what, times)
		if times < 0.95 || times > 1.2 {
			t.Errorf("%s: the source served its bytes %.2f times", what, times)
		}
	}
	var l *live
	all := func() {
		waitWritten(t, adminOf(t, one), "sharedsrc.shared", total)
		waitWritten(t, adminOf(t, two), "sharedsrc.shared", total)
		waitWritten(t, adminOf(t, two), "shared-third", total)
	}

	const volume = 48 << 20
	write(volume)
	once("a backlog", served(volume, func() {
		l = start(t, cfg)
		all()
	}))
	together := func() bool {
		return gaugeOf(t, l, "kferry_fetch_feeds") == lanes
	}
	waitFor(t, "one feed for each partition", together)

	t.Cleanup(two.Proxy.Resume)
	two.Proxy.Stall()
	stuck, healed := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	watch.Go(func() {
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		for ; stuck.Err() == nil; <-look.C {
			if used, limit := l.Memory(); used > limit {
				t.Errorf("holds %d bytes, the limit is %d", used, limit)
			}
		}
	})
	began := time.Now()
	t.Logf("one target is stuck: served %.2f times", served(volume, func() {
		write(volume)
		waitWritten(t, adminOf(t, one), "sharedsrc.shared", total)
		waitWritten(t, adminOf(t, two), "sharedsrc.shared", total)
	}))
	t.Logf("the others are done after %v", time.Since(began))
	if n := written(t, adminOf(t, two), "shared-third"); n >= total || together() {
		healed()
		t.Fatalf("the third target has %d of %d records: it was not stuck", n, total)
	}
	two.Proxy.Resume()
	all()
	waitFor(t, "one feed for each partition again", together)
	healed()
	watch.Wait()

	once("after all of it", served(volume, func() {
		write(volume)
		all()
	}))
	l.stop()
	sameBytes(t, from, "shared", one, "sharedsrc.shared", lanes)
	sameBytes(t, from, "shared", two, "sharedsrc.shared", lanes)
	sameBytes(t, from, "shared", two, "shared-third", lanes)
}

// gaugeOf is the sum of a metric over its labels.
func gaugeOf(t *testing.T, l *live, name string) (sum float64) {
	t.Helper()
	for line := range strings.Lines(l.metrics()) {
		if series, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(series, name+"{") {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(fmt.Errorf("%s: %w", line, err))
			}
			sum += v
		}
	}
	return sum
}
