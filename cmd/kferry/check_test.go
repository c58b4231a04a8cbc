package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
)

func TestCheck(t *testing.T) {
	p := newPair(t)
	p.produce(t, "orders", 3, 1)
	code, stdout, stderr := kferry(t, "check", "-c", p.file)
	if code != exitRefused || stderr != "kferry: would not pass\n" { // one broker, and default.replication.factor=3
		t.Errorf("exit %d, %q", code, stderr)
	}
	want := `ok    east: reached: cluster id east, brokers: 1, topics that kferry may see: 1
ok    west: reached: cluster id west, brokers: 1, topics that kferry may see: 0

link east.west
fail  orders: it cannot be created: west has default.replication.factor=3 and 1 broker
`
	if !strings.HasPrefix(stdout, want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", stdout, want)
	}
}

func TestCheckPasses(t *testing.T) {
	p := newPair(t)
	p.produce(t, "orders", 3, 1)
	if code, _, stderr := kferry(t, "run", "--until-caught-up", "-c", p.file); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	code, stdout, stderr := kferry(t, "check", "--json", "-c", p.file)
	var report pipeline.CheckReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if code != 0 || stderr != "" || len(report.Findings) < 3 || !report.Passes() {
		t.Errorf("exit %d, %q, %+v", code, stderr, report)
	}
	if err := p.west.ProduceSync(t.Context(), &kgo.Record{Topic: "east.orders"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr = kferry(t, "check", "-c", p.file); code != 0 { // the state knows the topic
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestCheckThatReachesNobody(t *testing.T) {
	file := writeFile(t, `
clusters: { east: { bootstrap: ["127.0.0.1:1"] }, west: { bootstrap: ["127.0.0.1:2"] } }
links: [{ from: east, to: west }]
log: { level: error }
`)
	code, stdout, stderr := kferry(t, "check", "-c", file)
	if code != exitFailed || strings.Count(stdout, "fail  refresh metadata of ") != 2 || stderr != "kferry: not every cluster answers\n" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

func TestShowFindings(t *testing.T) {
	findings := []pipeline.Finding{{Level: pipeline.LevelOK, Text: "east: reached"}}
	for i := range 7 {
		findings = append(findings, pipeline.Finding{Level: pipeline.LevelWarn, Link: "a", Topic: fmt.Sprint("t", i), Text: "x", Cure: "y"})
	}
	findings = append(findings,
		pipeline.Finding{Level: pipeline.LevelWarn, Link: "a", Topic: "t0", Text: "z"},
		pipeline.Finding{Level: pipeline.LevelOK, Link: "a", Text: "would copy 7 topics"},
		pipeline.Finding{Level: pipeline.LevelFail, Link: "b", Topic: "t0", Text: "x", Cure: "y"})
	want := `ok    east: reached

link a
warn  t0, t1, t2, t3, t4 and 2 more: x
      -> y
warn  t0: z
ok    would copy 7 topics

link b
fail  t0: x
      -> y
`
	if d := cmp.Diff(want, showFindings(findings)); d != "" {
		t.Error(d)
	}
}
