package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
)

func TestVerify(t *testing.T) {
	p := newPair(t)
	p.produce(t, "orders", 3, 50)
	if code, _, stderr := kferry(t, "run", "--until-caught-up", "-c", p.file); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	code, stdout, stderr := kferry(t, "verify", "-c", p.file)
	if code != 0 || !strings.HasPrefix(stdout, "link east.west: equal: 50 records in 3 partitions, ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}

	if err := p.west.ProduceSync(t.Context(), &kgo.Record{Topic: "east.orders", Key: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = kferry(t, "verify", "-c", p.file, "--json", "--headers")
	var report pipeline.VerifyReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if code != exitDiffers || len(report.Links) != 1 || len(report.Links[0].Differences) != 1 || report.Links[0].Differences[0].Kind != pipeline.DiffForeign {
		t.Errorf("exit %d, %+v", code, report)
	}
	if want := "kferry: link east.west differs: " + report.Links[0].Differences[0].String() + "\n"; stderr != want {
		t.Errorf("got  %s\nwant %s", stderr, want)
	}

	code, stdout, stderr = kferry(t, "verify", "-c", p.file, "--link", "nope")
	if want := "kferry: refused: there is no link \"nope\" in the configuration\n"; code != exitRefused || stdout != "" || stderr != want {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if code, _, stderr = kferry(t, "verify", "-c", p.file, "--workers", "0"); code != exitRefused || stderr != "kferry: --workers 0: at least 1 is needed\n" {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestVerifyThatCannotCompare(t *testing.T) {
	file := writeFile(t, `
clusters: { east: { bootstrap: ["127.0.0.1:1"] }, west: { bootstrap: ["127.0.0.1:1"] } }
links: [{ from: east, to: west, allow_same_cluster: true, naming: { rename: { a: b } }, topics: { include: [a] } }]
log: { level: error }
`)
	code, stdout, stderr := kferry(t, "verify", "-c", file)
	if code != exitFailed || !strings.Contains(stdout, "link east.west: not all compared: 0 records in 0 partitions") ||
		!strings.Contains(stdout, "connection refused") || stderr != "kferry: not all could be compared\n" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestShowReport(t *testing.T) {
	r := pipeline.VerifyReport{Links: []pipeline.VerifiedLink{{
		Name: "east.west", Partitions: 2, Records: 10, ByRecord: 3, Foreign: 1, Bytes: 2048, Stateless: true,
		Differences: []pipeline.Difference{{Topic: "t", Target: "east.t", SrcOffset: 5, DstOffset: -1, Kind: pipeline.DiffDamaged, Text: "x"}},
		Uncompared:  []pipeline.Span{{Topic: "u", Partition: -1, Text: "y"}},
		Skipped:     make([]pipeline.Span, 22),
	}}}
	want := `link east.west: DIFFERS: 10 records in 2 partitions, 2.0 KiB read
  nothing is stored of this link: whole logs were compared
  3 of them record by record, as their batches are not the same bytes
  1 records of other writers on the target were passed over
  difference: t/0 to east.t, source offset 5: damaged: x
  not compared: u: y
` + strings.Repeat("  skipped: \n", 20) + "  skipped: and 2 more, see --json\n"
	if d := cmp.Diff(want, showReport(r)); d != "" {
		t.Error(d)
	}
}
