package pipeline

import (
	"bytes"
	"context"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"
)

// TestStages: each goroutine that moves data or waits for it carries the stage that profiles are split by, and franz-go's
// goroutines none of the data plane's.
func TestStages(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 3)
	p.write(p.east, "orders", 3, 0, 3000)
	pl := p.pipeline(p.config(DefaultLink("east", "west")), Options{})
	defer pl.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pl.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	waitStored(t, pl, 1000)

	of := stages(t)
	for within, want := range map[string]string{
		"source.(*fetcher).run":  "source",
		"lane.(*Lane).work":      "lane",
		"sink.(*sender).run":     "sink",
		"sink.(*sender).receive": "sink",
		"state.(*Store).Run":     "state",
		"(*Link).mark":           "state",
		"sink.(*looker).run":     "control",
		"source.(*Source).watch": "control",
		"(*Link).run":            "control",
	} {
		if got := of(within + "+"); len(got) != 1 || !got[want] {
			t.Errorf("goroutines in %s have the stages %v, want %s", within, got, want)
		}
	}
	kgo := of("github.com/twmb/franz-go/pkg/kgo.")
	if !kgo["control"] || !kgo["state"] || kgo["source"] || kgo["lane"] || kgo["sink"] {
		t.Errorf("franz-go's goroutines have the stages %v", kgo)
	}
}

// stages looks at all goroutines: the stages of those that have a function with this name on their stack, "" where there is none.
func stages(t *testing.T) (of func(function string) map[string]bool) {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`"stage":"(\w+)"`)
	return func(function string) map[string]bool {
		got := make(map[string]bool)
		for _, stack := range strings.Split(profile.String(), "\n\n") {
			if !strings.Contains(stack, function) {
				continue
			}
			stage := ""
			if m := label.FindStringSubmatch(stack); m != nil {
				stage = m[1]
			}
			got[stage] = true
		}
		return got
	}
}
