package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"

	"kferry/pipeline"
)

// live is a pipeline that runs beside the test.
type live struct {
	t *testing.T
	*pipeline.Pipeline
	ended chan error
	over  bool
}

// start runs cfg until stop, or the test's end. It returns when every link copies.
func start(t *testing.T, cfg pipeline.Config) *live {
	t.Helper()
	l := &live{t: t, Pipeline: newPipeline(t, cfg, pipeline.Options{}), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { l.ended <- l.Run(ctx) }()
	t.Cleanup(func() {
		if l.over {
			return
		}
		if t.Failed() {
			t.Logf("%+v", l.Snapshot())
		}
		cancel()
		<-l.ended
		l.Close()
	})
	waitFor(t, "the links to run", func() bool {
		select {
		case err := <-l.ended:
			l.over = true
			l.Close()
			t.Fatalf("the pipeline ended: %v", err)
		default:
		}
		return l.Ready() == nil
	})
	return l
}

// stop drains the pipeline, which has to end without an error.
func (l *live) stop() {
	l.t.Helper()
	l.Stop()
	err := <-l.ended
	l.over = true
	l.Close()
	if err != nil {
		l.t.Fatalf("stop: %v", err)
	}
}

// lane is the status of one source partition; the zero value while it has no lane.
func (l *live) lane(topic string, partition int32) pipeline.LaneStatus {
	for _, link := range l.Snapshot().Links {
		for _, p := range link.Partitions {
			if p.Topic == topic && p.Partition == partition {
				return p
			}
		}
	}
	return pipeline.LaneStatus{}
}

// parked waits until a lane is parked with a reason.
func (l *live) parked(topic string, partition int32, reason string) pipeline.LaneStatus {
	l.t.Helper()
	waitFor(l.t, topic+" to be parked as "+reason, func() bool {
		s := l.lane(topic, partition)
		return s.State == "parked" && s.Reason == reason
	})
	return l.lane(topic, partition)
}

// metrics is the text of /metrics.
func (l *live) metrics() string {
	var b strings.Builder
	l.WriteMetrics(&b)
	return b.String()
}

// try runs a job and returns its error.
func try(t *testing.T, cfg pipeline.Config) (pipeline.Status, error) {
	t.Helper()
	p := newPipeline(t, cfg, pipeline.Options{UntilCaughtUp: true})
	defer p.Close()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the job takes too long"))
	defer cancel()
	err := p.Run(ctx)
	return p.Snapshot(), err
}

// stuckAs runs a job that has to end with one parked lane, and wants these words in its error.
func stuckAs(t *testing.T, cfg pipeline.Config, lane, reason string) {
	t.Helper()
	_, err := try(t, cfg)
	var stuck *pipeline.Stuck
	if !errors.As(err, &stuck) {
		t.Fatalf("the job ended with %v, want %s to be stuck as %s", err, lane, reason)
	}
	if len(stuck.Lanes) != 1 || !strings.Contains(stuck.Lanes[0], lane+": "+reason+" ") {
		t.Fatalf("stuck: %q, want only %s: %s", stuck.Lanes, lane, reason)
	}
}
