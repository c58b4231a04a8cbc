// Package e2e tests kferry on real Apache Kafka. Brokers are started once and shared: each test uses topics and links of
// its own. Where Java or Maven is missing the tests say so, and fail if CI is true.
package e2e

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

// shared are the brokers of all tests, by a name of their use; each starts with the first test that asks for it.
var shared struct {
	sync.Mutex
	running map[string]*kafkatest.Kafka
}

func TestMain(m *testing.M) {
	shared.running = make(map[string]*kafkatest.Kafka)
	code := m.Run()
	for _, k := range shared.running {
		k.Stop()
	}
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// broker gives the shared cluster of a name, starting it if it is the first to ask.
func broker(t *testing.T, name string, opts kafkatest.Options) *kafkatest.Kafka {
	t.Helper()
	kafkatest.Need(t)
	shared.Lock()
	defer shared.Unlock()
	k := shared.running[name]
	if k == nil {
		var err error
		if k, err = kafkatest.Start(t.Context(), opts); err != nil {
			t.Fatal(err)
		}
		shared.running[name] = k
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s:\n%s", name, k.Tail())
		}
	})
	return k
}

func east(t *testing.T) *kafkatest.Kafka {
	return broker(t, "4.4 east", kafkatest.Options{Version: "4.4.0", Proxied: true})
}
func west(t *testing.T) *kafkatest.Kafka {
	return broker(t, "4.4 west", kafkatest.Options{Version: "4.4.0", Proxied: true})
}
func old(t *testing.T) *kafkatest.Kafka {
	return broker(t, "3.9", kafkatest.Options{Version: "3.9.2"})
}

// oldest runs with ZooKeeper, and writes message formats 0 and 1 where a topic says so.
func oldest(t *testing.T) *kafkatest.Kafka {
	return broker(t, "2.8", kafkatest.Options{Version: "2.8.2"})
}

// config is one link between two clusters for the topics that match include.
func config(from, to *kafkatest.Kafka, name string, include ...string) pipeline.Config {
	cfg := pipeline.DefaultConfig()
	cfg.AdminListen = ""
	cfg.MemoryBytes = 64 << 20
	src, dst := name+"src", name+"dst"
	cfg.Clusters[src] = cluster.Config{Alias: src, Bootstrap: from.Bootstrap()}
	cfg.Clusters[dst] = cluster.Config{Alias: dst, Bootstrap: to.Bootstrap()}
	l := pipeline.DefaultLink(src, dst)
	l.Topics.Include = include
	l.Refresh = time.Second
	cfg.Links = []pipeline.LinkConfig{l}
	return cfg
}

type logTo struct{ testing.TB }

func (l logTo) Write(b []byte) (int, error) {
	l.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func newLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(logTo{t}, nil)) }

func newPipeline(t *testing.T, cfg pipeline.Config, opts pipeline.Options) *pipeline.Pipeline {
	t.Helper()
	p, err := pipeline.New(cfg, opts, newLog(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// job copies until caught up.
func job(t *testing.T, cfg pipeline.Config) {
	t.Helper()
	p := newPipeline(t, cfg, pipeline.Options{UntilCaughtUp: true})
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Fatalf("%v\n%+v", err, p.Snapshot())
	}
}

// patience is how long anything may take that is expected to happen; the machine may be busy with other things.
const patience = 2 * time.Minute

// client is a franz-go client of k.
func client(t *testing.T, k *kafkatest.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := k.Client(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func adminOf(t *testing.T, k *kafkatest.Kafka) *kadm.Client {
	t.Helper()
	return kadm.NewClient(client(t, k))
}

func create(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32, configs ...string) {
	t.Helper()
	m := make(map[string]*string)
	for i := 0; i < len(configs); i += 2 {
		m[configs[i]] = &configs[i+1]
	}
	r, err := adminOf(t, k).CreateTopic(t.Context(), partitions, 1, m, topic)
	if err == nil {
		err = r.Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sameBytes compares the record sections of all data batches of a topic and its copy, byte for byte.
func sameBytes(t *testing.T, from *kafkatest.Kafka, topic string, to *kafkatest.Kafka, copied string, partitions int32) {
	t.Helper()
	const header, attributes = 61, 21
	for p := range partitions {
		want, err := kafkatest.RawBatches(t.Context(), from.Bootstrap(), topic, p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kafkatest.RawBatches(t.Context(), to.Bootstrap(), copied, p)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) != len(got) {
			t.Fatalf("%s/%d: %d batches, its copy has %d", topic, p, len(want), len(got))
		}
		for i := range want {
			if !bytes.Equal(want[i][header:], got[i][header:]) {
				t.Fatalf("%s/%d: the record section of batch %d differs", topic, p, i)
			}
			if want[i][attributes+1]&7 != got[i][attributes+1]&7 {
				t.Fatalf("%s/%d: the codec of batch %d differs", topic, p, i)
			}
		}
	}
}

// waitFor polls until f is true.
func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !f() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func alias(cfg pipeline.Config) string { return cfg.Links[0].From }

func name(parts ...any) string { return strings.ReplaceAll(fmt.Sprint(parts...), " ", "-") }
