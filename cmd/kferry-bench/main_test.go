package main

import (
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	const line = `{"scenario":"forward","figure":"forward-cpu-per-byte","value":0.6,"unit":"ns/B","min":0.5,"max":0.7,"runs":5,"against":"relay-cpu-per-byte","ratio":1.5,"bound":1.6,"ok":true}`
	for _, c := range []struct {
		args, in  string
		code      int
		out, errs string // parts
	}{
		{"list", "", 0, "forward       kferry between a synthetic source", ""},
		{"list", "", 0, "mm2           kferry and MirrorMaker 2", ""},
		{"report", line, 0, "| forward | forward-cpu-per-byte | 0.6 ns/B | 0.5 to 0.7 | 5 | relay-cpu-per-byte | 1.50 | 1.60 | ok |", ""},
		{"report", "{", 1, "", "kferry-bench: stdin:1: unexpected end of JSON input\n"},
		{"report nowhere.jsonl", "", 1, "", "kferry-bench: open nowhere.jsonl: no such file or directory\n"},
		{"run juggle", "", 1, "", "kferry-bench: scenario \"juggle\": want one of [forward small-batches tls fan-out idle stuck latency slow mixed allocations source-impact mm2]\n"},
		{"run", "", 1, "", "kferry-bench: accepts 1 arg(s), received 0\n"},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), strings.Fields(c.args), strings.NewReader(c.in), &out, &errs)
		if code != c.code || !strings.Contains(out.String(), c.out) || errs.String() != c.errs {
			t.Errorf("%s: code %d\n%s%s", c.args, code, &out, &errs)
		}
	}
}
