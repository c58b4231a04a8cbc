package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func costs(ns ...int64) (all []Cost) {
	for _, n := range ns {
		all = append(all, Cost{CPU: time.Duration(n), Records: 1, Bytes: 10, Wall: time.Second})
	}
	return all
}

func TestFigures(t *testing.T) {
	odd := told("s", "f", "ns/record", costs(30, 10, 20), perRecord)
	if odd.Value != 20 || odd.Min != 10 || odd.Max != 30 || odd.Runs != 3 || !odd.OK {
		t.Errorf("three runs: %+v", odd)
	}
	even := told("s", "f", "ns/B", costs(40, 10, 20, 30), perByte)
	if even.Value != 2.5 || even.Min != 1 || even.Max != 4 {
		t.Errorf("four runs: %+v", even)
	}
	for bound, ok := range map[float64]bool{20: true, 19: false} {
		if got := odd.within(bound); got.OK != ok || *got.Bound != bound || got.Ratio != nil || got.Against != "" {
			t.Errorf("bound %v of the value: %+v", bound, got)
		}
	}
	if got := odd.within(19).String(); !strings.HasSuffix(got, "10 to 30 in 3 runs, bound 19 ns/record: MISSED") {
		t.Errorf("line for people: %s", got)
	}
	rival := told("s", "rival", "ns/record", costs(400), perRecord)
	if got := cheapest(rival, odd, rival); got.Figure != "f" {
		t.Errorf("cheapest: %+v", got)
	}
	for bound, ok := range map[float64]bool{0.05: true, 0.04: false} {
		if got := odd.judged(rival, bound); *got.Ratio != 0.05 || got.OK != ok || got.Against != "rival" || *got.Bound != bound {
			t.Errorf("bound %v: %+v", bound, got)
		}
	}
	for bound, ok := range map[float64]bool{0.05: true, 0.06: false} {
		if got := odd.keeps(rival, bound); *got.Ratio != 0.05 || got.OK != ok || got.Against != "rival" || *got.Bound != bound {
			t.Errorf("bound %v from below: %+v", bound, got)
		}
	}
	if got := odd.beside(rival); *got.Ratio != 0.05 || !got.OK || got.Against != "rival" || got.Bound != nil {
		t.Errorf("without a bound: %+v", got)
	}
	line, err := json.Marshal(odd.judged(rival, 0.05))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"scenario":"s","figure":"f","value":20,"unit":"ns/record","min":10,"max":30,"runs":3,"against":"rival","ratio":0.05,"bound":0.05,"ok":true}`
	if string(line) != want {
		t.Errorf("JSON line\n%s\nwant\n%s", line, want)
	}
	if got := odd.judged(rival, 0.04).String(); !strings.HasSuffix(got, "20 ns/record  10 to 30 in 3 runs; 1/20 of rival, bound 1/25: MISSED") {
		t.Errorf("line for people: %s", got)
	}
}

func TestAlternateTakesTurns(t *testing.T) {
	var order string
	mark := func(name string, err error) subject {
		return subject{name, func(context.Context) (Cost, error) { order += name; return Cost{Wall: 1}, err }}
	}
	got, err := alternate(t.Context(), 3, io.Discard, mark("a", nil), mark("b", nil))
	if err != nil || order != "ababab" || len(got) != 2 || len(got[0]) != 3 {
		t.Errorf("order %s, %d subjects, error %v", order, len(got), err)
	}
	broken := errors.New("broken")
	if _, err := alternate(t.Context(), 3, io.Discard, mark("c", broken)); !errors.Is(err, broken) || err.Error() != "c, run 1 of 3: broken" {
		t.Errorf("error %v", err)
	}
}

func TestReport(t *testing.T) {
	rival := told("s", "rival", "ns/record", costs(400), perRecord)
	fast := told("s", "rate", "B/s", []Cost{{Bytes: 1.5e9, Wall: time.Second}}, bytesPerSecond)
	var b strings.Builder
	if err := Report(t.Context(), &b, []Result{told("s", "f", "ns/record", costs(30, 10, 20), perRecord).judged(rival, 0.05), rival, fast}); err != nil {
		t.Fatal(err)
	}
	head, table, _ := strings.Cut(b.String(), "\n\n")
	if !strings.HasPrefix(head, "Commit ") || !strings.Contains(head, " cores of ") {
		t.Errorf("head %q names neither commit nor machine", head)
	}
	const want = `| scenario | figure | median | min to max | runs | against | ratio | bound | |
|---|---|---|---|---|---|---|---|---|
| s | f | 20 ns/record | 10 to 30 | 3 | rival | 1/20 | 1/20 | ok |
| s | rival | 400 ns/record | 400 to 400 | 1 |  |  |  |  |
| s | rate | 1500 M B/s | 1500 M to 1500 M | 1 |  |  |  |  |
`
	if table != want {
		t.Errorf("table\n%s\nwant\n%s", table, want)
	}
}

// Every figure that a scenario can print has its line in figures.md.
func TestFiguresAreListed(t *testing.T) {
	list, err := os.ReadFile("figures.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"forward.go", "mm2.go", "smallbatches.go", "tls.go", "fanout.go", "idle.go", "stuck.go", "latency.go", "many.go", "allocations.go", "sourceimpact.go"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, part := range strings.Split(string(code), `told(name, "`)[1:] {
			slug, _, _ := strings.Cut(part, `"`)
			if !strings.Contains(string(list), "`"+slug+"`") {
				t.Errorf("%s: figure %s is not in figures.md", file, slug)
			}
			found++
		}
		if found < 2 {
			t.Errorf("%s: %d figures found, want at least 2", file, found)
		}
	}
}
