package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
	"kferry/pipeline/sink"
	"kferry/pipeline/source"
	"kferry/pipeline/state"
)

// Link copies topics in one direction between two clusters.
type Link struct {
	p        *Pipeline
	cfg      LinkConfig
	log      *slog.Logger
	filter   *partitioner.Filter
	from, to *cluster.Cluster
	source   *source.Source
	sink     *sink.Sink

	// of run's goroutine, from open on
	store   *state.Store
	topics  *control.Topics
	pid     int64
	record  state.Link
	first   bool                        // the link never ran before
	widened *partitioner.Filter         // the filter of the last run, where it was another one
	oldIDs  map[cluster.Place][16]byte  // topic ids in the state
	short   map[state.LaneKey]time.Time // since when a target seems to end before its checkpoint
	met     map[cluster.Place]bool      // what stood at this start; nil before, empty once the first round is done

	mu       sync.Mutex
	phase    string                     // what the link is doing, for status
	lanes    map[cluster.Place]*running // by their partition on the source
	problems map[string]string          // by topic: why it is not, or not fully, copied
	said     map[string]string          // by topic: what was last logged
	moved    []*running                 // lanes whose position has changed since mark looked
	began    sync.Once                  // its first lanes are open
	wg       sync.WaitGroup             // of lanes
	life     context.Context
	endLanes context.CancelFunc // ends all lanes at once
}

func newLink(p *Pipeline, cfg LinkConfig) (*Link, error) {
	filter, err := cfg.Filter()
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", cfg.Name, err)
	}
	log := p.log.With("link", cfg.Name)
	l := &Link{p: p, cfg: cfg, log: log, filter: filter, from: p.clusters[cfg.From], to: p.clusters[cfg.To], source: p.sources[cfg.source()], sink: p.sinks[cfg.To],
		phase: "connecting", lanes: make(map[cluster.Place]*running), problems: make(map[string]string), said: make(map[string]string), short: make(map[state.LaneKey]time.Time)}
	return l, nil
}

// retryEvery is the pause between tries of the control work that a link cannot start without.
const retryEvery = 2 * time.Second

// forever repeats f until it works, the link is stopped (ok is false), or f fails for good.
func (l *Link) forever(ctx context.Context, what string, f func(context.Context) error) (ok bool, err error) {
	for said := ""; ; {
		attempt, cancel := l.whileWanted(ctx, time.Minute)
		err := f(attempt)
		cancel()
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case l.p.stopping.Err() != nil:
			return false, nil
		case cluster.Fatal(err) || errors.Is(err, ErrRefused) || errors.Is(err, state.ErrVersion) || errors.Is(err, state.ErrRecord):
			return false, fmt.Errorf("link %s: %s: %w", l.cfg.Name, what, err)
		case errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.TopicAuthorizationFailed):
			return false, fmt.Errorf("link %s: %s: %w: %w", l.cfg.Name, what, cluster.ErrUnauthorized, err)
		case err.Error() != said:
			said = err.Error()
			l.log.Warn("cannot "+what+" yet, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-l.p.stopping.Done():
			return false, nil
		case <-time.After(retryEvery):
		}
	}
}

// whileWanted gives control work a context that also ends when the link is to stop: a cluster that does not answer must not
// hold that up.
func (l *Link) whileWanted(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, most)
	unhook := context.AfterFunc(l.p.stopping, cancel)
	return ctx, func() {
		unhook()
		cancel()
	}
}

func (l *Link) setPhase(s string) {
	l.mu.Lock()
	l.phase = s
	l.mu.Unlock()
}

// run does the link's life: connect, load the state, follow the topics, hand over.
func (l *Link) run(ctx context.Context) error {
	if ok, err := l.forever(ctx, "connect", l.connect); !ok {
		return err
	}
	l.setPhase("loading state")
	if ok, err := l.forever(ctx, "load the state", l.open); !ok {
		return err
	}
	defer l.store.Close()
	l.life, l.endLanes = context.WithCancel(context.Background())
	defer l.endLanes()
	defer context.AfterFunc(l.life, func() {
		for _, r := range l.running() {
			r.lane.Abort()
		}
	})()
	defer context.AfterFunc(ctx, l.store.Close)() // franz-go would wait for the answers to what it has written

	// The store outlives the lanes: it keeps where they end.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background sync.WaitGroup
	background.Go(func() {
		cluster.StageState.Enter()
		l.store.Run(inner)
	})
	var marking sync.WaitGroup
	marks, stopMarks := context.WithCancel(inner)
	defer stopMarks()
	marking.Go(func() {
		cluster.StageState.Enter()
		l.mark(marks)
	})

	var job *job
	l.setPhase("running")
	err := l.follow(ctx, &job)
	l.setPhase("handing over")
	clean, unstored := l.handOver(ctx, func() {
		stopMarks()
		marking.Wait()
	})
	l.setPhase("stopped")
	stop()
	background.Wait()
	if err == nil && ctx.Err() == nil {
		l.log.Info("stopped", "clean", clean)
		if job != nil && unstored != nil {
			return fmt.Errorf("link %s: all was copied, its positions were not stored: run it again: %w", l.cfg.Name, unstored)
		}
		return job.verdict()
	}
	return err
}
