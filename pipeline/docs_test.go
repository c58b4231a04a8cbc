package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/lane"
)

// The texts say what the code does, or these tests fail: metric names, types and labels, states, reasons, files and links.

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// metric is what a row of docs/metrics.md, or a scrape, says of one name.
type metric struct{ kind, labels string }

var metricRow = regexp.MustCompile("(?m)^\\| `(kferry_[a-z_]+)` \\| (counter|gauge) \\| ([^|]*) \\|")

func documented(t *testing.T) map[string]metric {
	all := make(map[string]metric)
	for _, row := range metricRow.FindAllStringSubmatch(text(t, "../docs/metrics.md"), -1) {
		if _, twice := all[row[1]]; twice {
			t.Errorf("%s has two rows", row[1])
		}
		all[row[1]] = metric{row[2], strings.ReplaceAll(row[3], "`", "")}
	}
	return all
}

// Every name in the code has a row and every row a name in the code: some series show only once there is something to tell.
func TestMetricsOfTheCodeAreDocumented(t *testing.T) {
	var code []string
	for _, m := range regexp.MustCompile("`(kferry_[a-z_]+)").FindAllStringSubmatch(text(t, "metrics.go"), -1) {
		code = append(code, m[1])
	}
	slices.Sort(code)
	docs := documented(t)
	if d := cmp.Diff(slices.Compact(code), slices.Sorted(maps.Keys(docs))); d != "" {
		t.Errorf("-metrics.go +docs/metrics.md\n%s", d)
	}
	for name, m := range docs {
		if (m.kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is documented as a %s", name, m.kind)
		}
	}
}

var (
	series = regexp.MustCompile(`(?m)^(kferry_[a-z_]+)(?:\{(.*)\})? \S+$`)
	label  = regexp.MustCompile(`([a-z]+)="`)
)

// What a running pipeline shows has the labels that its rows promise.
func TestMetricsOfARunAreDocumented(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 1)
	p.write(p.east, "orders", 1, 0, 100)
	p.abort(p.east, "orders")
	pl := p.pipeline(p.config(DefaultLink("east", "west")), Options{})
	defer pl.Close()
	ended := make(chan error, 1)
	go func() { ended <- pl.Run(t.Context()) }()
	docs, shown := documented(t), make(map[string]bool)
	deadline, tick := time.After(20*time.Second), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !shown["kferry_batches_dropped_total"] {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("nothing was dropped; shown: %v", slices.Sorted(maps.Keys(shown)))
		}
		var out bytes.Buffer
		pl.WriteMetrics(&out)
		for _, m := range series.FindAllStringSubmatch(out.String(), -1) {
			var labels []string
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				labels = append(labels, l[1])
			}
			if shown[m[1]] {
				continue
			}
			shown[m[1]] = true
			if want, ok := docs[m[1]]; !ok || want.labels != strings.Join(labels, ", ") {
				t.Errorf("%s shows the labels %v, docs/metrics.md has %q", m[1], labels, want.labels)
			}
		}
	}
	if len(shown) < 20 {
		t.Errorf("only %v are shown", slices.Sorted(maps.Keys(shown)))
	}
	pl.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// abort writes one aborted transaction.
func (p *twins) abort(c interface{ ListenAddrs() []string }, topic string) {
	p.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("aborts"))
	if err != nil {
		p.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(p.Context(), 10*time.Second)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		p.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("never")}).FirstErr(); err != nil {
		p.Fatal(err)
	}
	if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
		p.Fatal(err)
	}
}

// The table of reasons is lane.ReasonTable row by row, and every state has its own row.
func TestStatesAndReasonsAreDocumented(t *testing.T) {
	doc := text(t, "../docs/metrics.md")
	want := make(map[string]bool)
	for _, r := range lane.ReasonTable() {
		want[fmt.Sprintf("| `%s` | %s | %s | %s |", r.Reason, r.State, r.What, r.Cure)] = true
	}
	var states []string
	for _, s := range lane.States() {
		states = append(states, s.String())
	}
	var shown []string
	for line := range strings.Lines(doc) {
		line = strings.TrimSpace(line)
		if m := regexp.MustCompile("^\\| `([a-z-]+)` \\|").FindStringSubmatch(line); m == nil {
			continue
		} else if slices.Contains(states, m[1]) {
			shown = append(shown, m[1])
		} else if !want[line] {
			t.Errorf("docs/metrics.md has a row that lane.ReasonTable has not:\n%s", line)
		} else {
			delete(want, line)
		}
	}
	for row := range want {
		t.Errorf("docs/metrics.md misses the row\n%s", row)
	}
	if d := cmp.Diff(states, shown); d != "" {
		t.Errorf("states: -code +docs/metrics.md\n%s", d)
	}
}

// Whatever a text names exists: metrics, files, and where its links lead.
func TestTextsNameWhatExists(t *testing.T) {
	texts, err := filepath.Glob("../*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"../docs/*.md", "../docs/adr/*.md"} {
		more, err := filepath.Glob(folder)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, more...)
	}
	if len(texts) < 10 {
		t.Fatalf("only %v are found", texts)
	}
	docs := documented(t)
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	file := regexp.MustCompile("`((?:batch|bench|cmd|docs|partitioner|pipeline|tuning)/[A-Za-z0-9_./-]*)`")
	room := regexp.MustCompile("(?m)^\\| `([a-z/]+/)` \\|.*$") // of DESIGN.md's file map: names in its row lie in it
	inRoom := regexp.MustCompile("`([a-z_]+\\.go|testdata/)`")
	name := regexp.MustCompile(`kferry_[a-z_]+[a-z]`)
	for _, path := range texts {
		body := text(t, path)
		for _, m := range link.FindAllStringSubmatch(body, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
		for _, m := range file.FindAllStringSubmatch(body, -1) {
			if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
				t.Errorf("%s names %s: %v", path, m[1], err)
			}
		}
		for _, row := range room.FindAllStringSubmatch(body, -1) {
			for _, m := range inRoom.FindAllStringSubmatch(row[0], -1) {
				if _, err := os.Stat(filepath.Join("..", row[1], m[1])); err != nil {
					t.Errorf("%s names %s in %s: %v", path, m[1], row[1], err)
				}
			}
		}
		for _, m := range name.FindAllString(body, -1) {
			if _, ok := docs[m]; !ok {
				t.Errorf("%s names %s, which has no row in docs/metrics.md", path, m)
			}
		}
	}
}
