package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
	"kferry/pipeline/state"
)

const (
	verifyWorkers     = 4
	verifyWorkersMost = 64 // partitions compared at once; each holds two fetch responses
)

// VerifyOptions say how Verify compares.
type VerifyOptions struct {
	Headers  bool                    // trust the stored checksums instead of summing every batch on both sides
	Links    []string                // names; none: all
	Workers  int                     // partitions compared at once; 0: 4
	Progress func(done, total int64) // source offsets, of one link after the other; may be nil, is called by one goroutine at a time
}

// Verify compares what every link has copied with its source: for each partition the source's log from the recorded start
// to the stored checkpoint, less what the link drops, with what lies on the target. It writes nothing, and may be used while
// the links run, here or elsewhere; Run is not needed.
//
// The error is that of a configuration or permission that has to be mended (ErrRefused, cluster.Fatal) or of ctx. A cluster
// that does not answer, and whatever else stands in the way of one link, is in the report.
func (p *Pipeline) Verify(ctx context.Context, opts VerifyOptions) (VerifyReport, error) {
	report := VerifyReport{Headers: opts.Headers, Links: []VerifiedLink{}}
	opts.Workers = min(cmp.Or(max(opts.Workers, 0), verifyWorkers), verifyWorkersMost)
	links, err := p.named(opts.Links)
	if err != nil {
		return report, err
	}
	for _, l := range links {
		v := VerifiedLink{Name: l.cfg.Name, From: l.cfg.From, To: l.cfg.To, Differences: []Difference{}, Uncompared: []Span{}, Skipped: []Span{}}
		err := l.verify(ctx, opts, &v)
		switch {
		case ctx.Err() != nil:
			return report, context.Cause(ctx)
		case err != nil && (errors.Is(err, ErrRefused) || cluster.Fatal(err)):
			return report, fmt.Errorf("link %s: %w", l.cfg.Name, err)
		case err != nil:
			v.Uncompared = append(v.Uncompared, Span{Partition: -1, Text: err.Error()})
		}
		report.Links = append(report.Links, v)
	}
	return report, nil
}

// named picks links by their names; no names: all.
func (p *Pipeline) named(names []string) ([]*Link, error) {
	if len(names) == 0 {
		return p.links, nil
	}
	var links []*Link
	for _, name := range names {
		i := slices.IndexFunc(p.links, func(l *Link) bool { return l.cfg.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: there is no link %q in the configuration", ErrRefused, name)
		}
		links = append(links, p.links[i])
	}
	return links, nil
}

// verify compares one link.
func (l *Link) verify(ctx context.Context, opts VerifyOptions, v *VerifiedLink) error {
	stretches, err := l.stretches(ctx, v)
	if err != nil {
		return err
	}
	var done, total atomic.Int64
	for _, p := range stretches {
		total.Add(max(p.srcNext-p.srcStart, 0))
	}
	watched := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(watched)
		for opts.Progress != nil {
			opts.Progress(done.Load(), total.Load())
			select {
			case <-stop:
				opts.Progress(done.Load(), total.Load())
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	walks := make([]*walk, len(stretches))
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(opts.Workers)
	for i, p := range stretches {
		walks[i] = newWalk(l, p, !opts.Headers, &done)
		group.Go(func() error { return walks[i].run(inner) })
	}
	err = group.Wait()
	close(stop)
	<-watched
	for _, w := range walks {
		v.Partitions++
		v.Batches += w.batches
		v.Records += w.records
		v.ByRecord += w.byRecord
		v.Doubled += w.doubled
		v.Foreign += w.foreign
		v.Bytes += w.src.bytes + w.dst.bytes
		v.Differences = append(v.Differences, w.differences...)
		v.Uncompared = append(v.Uncompared, w.uncompared...)
		v.Skipped = append(v.Skipped, w.skipped...)
	}
	slices.SortStableFunc(v.Uncompared, Span.compare)
	slices.SortStableFunc(v.Skipped, Span.compare)
	return err
}

// stretch is one source partition and what was written of it.
type stretch struct {
	key                state.LaneKey
	target             string
	srcStart, srcNext  int64 // copied: [srcStart, srcNext)
	dstStart, dstNext  int64 // to be found in [dstStart, dstNext)
	srcFirst, dstFirst int64 // where the logs begin now
	pids               []int64
}

// stretches lists what is to be compared, by topic and partition, and notes in v what cannot be.
func (l *Link) stretches(ctx context.Context, v *VerifiedLink) ([]stretch, error) {
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	toID, err := l.to.ID(ctx)
	if err != nil {
		return nil, err
	}
	topics, err := l.control(ctx, toID)
	if err != nil {
		return nil, err
	}
	planned, err := topics.Plan(ctx)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]control.Topic)
	var sources, targets []cluster.Place
	for _, t := range planned {
		switch {
		case errors.Is(t.Err, control.ErrNotForwarded):
		case t.Err != nil:
			v.Uncompared = append(v.Uncompared, Span{t.Source, -1, t.Err.Error()})
		case t.TargetPartitions == 0:
			v.Uncompared = append(v.Uncompared, Span{t.Source, -1, fmt.Sprintf("topic %s does not exist on %s", t.Target, l.cfg.To)})
		default:
			byName[t.Source] = t
			for p := range min(t.SourcePartitions, t.TargetPartitions) {
				sources, targets = append(sources, cluster.Place{Topic: t.Source, Partition: p}), append(targets, cluster.Place{Topic: t.Target, Partition: p})
			}
			for p := t.TargetPartitions; p < t.SourcePartitions; p++ {
				v.Uncompared = append(v.Uncompared, Span{t.Source, p, fmt.Sprintf("topic %s has only %d partitions", t.Target, t.TargetPartitions)})
			}
		}
	}
	// The ends are asked before the state: what a clean stop leaves behind its checkpoint is then not ours.
	bounds := l.bounds(ctx, sources, targets)
	store, err := l.readState(ctx)
	if err != nil {
		return nil, err
	}
	known := false
	if store != nil {
		defer store.Close()
		_, known = store.Link(l.cfg.Name)
		l.notPlanned(store, byName, v)
	}
	v.Stateless = !known
	var stretches []stretch
	for _, at := range sources {
		t := byName[at.Topic]
		x := stretch{key: state.LaneKey{Link: l.cfg.Name, Topic: at.Topic, TopicID: t.SourceID, Partition: at.Partition}, target: t.Target}
		if err := bounds.whole(&x); err != nil {
			v.Uncompared = append(v.Uncompared, Span{at.Topic, at.Partition, err.Error()})
			continue
		}
		if known {
			if why := recorded(store, &x); why != "" {
				v.Uncompared = append(v.Uncompared, Span{at.Topic, at.Partition, why})
				continue
			}
		}
		stretches = append(stretches, x)
	}
	return stretches, nil
}

// readState opens the link's state for reading; nil where there is none.
func (l *Link) readState(ctx context.Context) (*state.Store, error) {
	id, err := l.from.ID(ctx)
	if err != nil {
		return nil, err
	}
	store, err := state.Open(ctx, state.Options{NewClient: l.to.NewClient, Alias: l.cfg.From, ClusterID: id, ReadOnly: true, Log: l.log})
	if errors.Is(err, state.ErrNoTopic) {
		return nil, nil
	}
	return store, err
}

// notPlanned names copies that the state knows and the topics do not.
func (l *Link) notPlanned(store *state.Store, planned map[string]control.Topic, v *VerifiedLink) {
	old := make(map[string]string)
	for key := range store.Checkpoints() {
		t, ok := planned[key.Topic]
		switch {
		case key.Link != l.cfg.Name:
		case !ok:
			old[key.Topic] = "was copied before, and is not on the source or not in the link's filter any more"
		case key.TopicID != t.SourceID && key.TopicID != [16]byte{}:
			old[key.Topic] = "was created anew since it was copied: what was copied of the old one has no source to compare with"
		}
	}
	for topic, why := range old {
		v.Skipped = append(v.Skipped, Span{topic, -1, why})
	}
}

// recorded narrows a pair to what the state says was copied; why says what it lacks.
func recorded(store *state.Store, x *stretch) (why string) {
	start, ok := store.Start(x.key)
	if !ok {
		return "not started: the state has no start of it yet"
	}
	cp, ok := store.Checkpoint(x.key)
	if !ok {
		return "not started: the state has no checkpoint of it yet"
	}
	end := x.dstNext
	x.srcStart, x.srcNext, x.dstStart, x.dstNext = start.SrcStart, cp.SrcNext, start.DstStart, cp.DstNext
	if end < cp.DstNext {
		return fmt.Sprintf("the target ends at offset %d, %d was written before: it was rebuilt or truncated", end, cp.DstNext)
	}
	if cp.Clean {
		x.dstNext = end // nothing was sent beyond: what lies there is wrong
	}
	if cp.PID >= 0 {
		x.pids = append(x.pids, cp.PID)
	}
	if pid, ok := store.Producer(x.key.Link, 0); ok {
		x.pids = append(x.pids, pid)
	}
	return ""
}

// bounds are where logs begin and end, on both sides.
type bounds struct {
	srcStart, srcEnd, dstStart, dstEnd map[cluster.Place]cluster.Offset
}

// bounds asks both sides about partitions. The targets' ends come before anything else of them.
func (l *Link) bounds(ctx context.Context, sources, targets []cluster.Place) bounds {
	committed := l.cfg.Isolation == ReadCommitted
	return bounds{
		dstEnd:   l.to.Offsets(ctx, targets, cluster.Latest, false),
		dstStart: l.to.Offsets(ctx, targets, cluster.Earliest, false),
		srcEnd:   l.from.Offsets(ctx, sources, cluster.Latest, committed),
		srcStart: l.from.Offsets(ctx, sources, cluster.Earliest, false),
	}
}

// whole sets a stretch to all that both logs hold.
func (b bounds) whole(x *stretch) error {
	src := cluster.Place{Topic: x.key.Topic, Partition: x.key.Partition}
	dst := cluster.Place{Topic: x.target, Partition: x.key.Partition}
	for _, o := range []cluster.Offset{b.srcStart[src], b.srcEnd[src], b.dstStart[dst], b.dstEnd[dst]} {
		if o.Err != nil {
			return o.Err
		}
	}
	x.srcStart, x.srcNext, x.dstStart, x.dstNext = b.srcStart[src].Offset, b.srcEnd[src].Offset, b.dstStart[dst].Offset, b.dstEnd[dst].Offset
	x.srcFirst, x.dstFirst = x.srcStart, x.dstStart
	return nil
}
