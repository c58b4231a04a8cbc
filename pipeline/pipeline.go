// Package pipeline assembles kferry: links between clusters, the connections they share, and what an operator sees of them.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"kferry/batch"
	"kferry/pipeline/admin"
	"kferry/pipeline/cluster"
	"kferry/pipeline/sink"
	"kferry/pipeline/source"
	"kferry/tuning"
)

// Options are how a pipeline is run, beside what it is.
type Options struct {
	UntilCaughtUp bool          // end once every lane has reached the end that its log had at the start
	Grace         time.Duration // how long a stop may take: for what is in flight, and the rest to store where it got to; 0: 30 s
	LimitHeap     bool          // set the runtime's memory limit by Config.MemoryBytes; for a process of one pipeline
	Tuning        *tuning.Decision
}

// arriving is the part of the grace that what is in flight may take.
func (o Options) arriving() time.Duration { return o.Grace - min(o.Grace/3, 10*time.Second) }

// ErrRefused marks what the configuration and the clusters say together and kferry does not do: retrying cannot help.
var ErrRefused = errors.New("refused")

// Pipeline runs all links of one process.
type Pipeline struct {
	cfg      Config
	opts     Options
	tuning   tuning.Decision
	log      *slog.Logger
	clusters map[string]*cluster.Cluster
	sinks    map[string]*sink.Sink
	sources  map[sourceKey]*source.Source
	links    []*Link
	credit   *source.Credit
	pool     *batch.Pool
	recoder  *recoder
	stopping context.Context // ends with Stop
	stop     context.CancelFunc
	started  time.Time
}

// sourceKey is what links have to have in common to share what is read.
type sourceKey struct {
	alias     string
	isolation Isolation
}

// New checks cfg and opens its clusters, without dialing. Close frees them.
func New(cfg Config, opts Options, log *slog.Logger) (*Pipeline, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if opts.Grace == 0 {
		opts.Grace = 30 * time.Second
	}
	p := &Pipeline{cfg: cfg, opts: opts, log: log, clusters: make(map[string]*cluster.Cluster), sinks: make(map[string]*sink.Sink),
		sources: make(map[sourceKey]*source.Source), tuning: tuning.Default(cfg.MemoryBytes), started: time.Now(),
		credit: source.NewCredit(cfg.MemoryBytes), pool: batch.NewPool(cfg.MemoryBytes)}
	p.recoder = newRecoder(p.pool, cfg.MemoryBytes)
	cluster.StageControl.Enter() // what franz-go starts for its clients inherits it
	p.stopping, p.stop = context.WithCancel(context.Background())
	p.limitHeap(0)
	if opts.Tuning != nil {
		p.tuning = *opts.Tuning
	}
	for _, l := range cfg.Links {
		for _, alias := range []string{l.From, l.To} {
			if p.clusters[alias] != nil {
				continue
			}
			c, err := cluster.Open(cfg.Clusters[alias], log)
			if err != nil {
				p.Close()
				return nil, err
			}
			p.clusters[alias] = c
		}
		if p.sinks[l.To] == nil {
			p.sinks[l.To] = sink.New(p.clusters[l.To], p.sinkOptions(), log.With("cluster", l.To))
		}
		if key := l.source(); p.sources[key] == nil {
			p.sources[key] = source.New(p.clusters[l.From], p.sourceOptions(key), p.credit, p.pool, log.With("cluster", l.From))
		}
	}
	for _, l := range cfg.Links {
		link, err := newLink(p, l)
		if err != nil {
			p.Close()
			return nil, err
		}
		p.links = append(p.links, link)
	}
	return p, nil
}

// Close frees the clients. Run must have returned.
func (p *Pipeline) Close() {
	p.stop()
	for _, c := range p.clusters {
		c.Close()
	}
}

func (p *Pipeline) sinkOptions() sink.Options {
	t := &p.tuning
	return sink.Options{Conns: t.ProduceConns, RequestBytes: t.RequestBytes, BudgetBytes: t.BudgetBytes, MaxRequests: 256,
		LingerGap: t.LingerGap, AckTimeout: 25 * time.Second, IdleTimeout: 4 * time.Minute, Backoff: cluster.DefaultBackoff()}
}

func (l *LinkConfig) source() sourceKey { return sourceKey{l.From, l.Isolation} }

func (p *Pipeline) sourceOptions(key sourceKey) source.Options {
	t := &p.tuning
	links := 0
	for _, l := range p.cfg.Links {
		if l.source() == key {
			links++
		}
	}
	return source.Options{FetchBytes: t.FetchBytes, PartitionBytes: t.PartitionBytes, Conns: t.FetchConns,
		QuietWait: t.FetchWait, BacklogWait: 100 * time.Millisecond, QuietAfter: time.Second,
		ReadCommitted: key.isolation == ReadCommitted, Links: links, Backoff: cluster.DefaultBackoff()}
}

// Stop asks Run to hand over: lanes finish what is in flight, positions are stored, Run returns nil. It does not wait.
func (p *Pipeline) Stop() { p.stop() }

// Run copies until Stop, or in job mode until caught up, and returns nil then. When ctx ends it stops at once: what was
// not stored is copied again or looked for at the next start. An error ends all links: a cluster that refuses us for good
// (cluster.Fatal), ErrRefused, a *Stuck in job mode.
func (p *Pipeline) Run(ctx context.Context) error {
	cluster.StageControl.Enter()
	// Three rings: the server outlives the links, the connections outlive the lanes that use them.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	outer, stopServer := context.WithCancel(ctx)
	var server, conns, links sync.WaitGroup
	var mu sync.Mutex
	var failed error
	fail := func(err error) { // the other links hand over: what is theirs ends clean
		mu.Lock()
		defer mu.Unlock()
		if err != nil && failed == nil && ctx.Err() == nil {
			failed = err
			p.Stop()
		}
	}
	if p.cfg.AdminListen != "" {
		s := admin.New(p.cfg.AdminListen, p, p.log)
		server.Go(func() { fail(s.Run(outer)) })
	}
	inner, stopConns := context.WithCancel(context.WithoutCancel(ctx))
	defer stopConns()
	conns.Go(func() { p.cut(ctx, inner, stopConns) })
	for alias, s := range p.sinks {
		conns.Go(func() {
			if err := s.Run(inner); inner.Err() == nil {
				fail(fmt.Errorf("write to %s: %w", alias, err))
			}
		})
	}
	for key, s := range p.sources {
		conns.Go(func() {
			if err := s.Run(inner); inner.Err() == nil {
				fail(fmt.Errorf("read from %s: %w", key.alias, err))
			}
		})
	}
	var stuck *Stuck
	for _, l := range p.links {
		links.Go(func() {
			err := l.run(ctx)
			var s *Stuck
			if errors.As(err, &s) {
				mu.Lock()
				stuck = stuck.join(s)
				mu.Unlock()
				return
			}
			fail(err)
		})
	}
	links.Wait()
	stopConns()
	conns.Wait()
	stopServer()
	server.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if failed != nil {
		return failed
	}
	if stuck != nil {
		return stuck
	}
	return nil
}

// cut ends the connections to the targets under lanes that wait for an answer, once a stop may not take longer: else that
// would be the requests' deadlines.
func (p *Pipeline) cut(ctx, conns context.Context, stopConns context.CancelFunc) {
	select {
	case <-ctx.Done():
	case <-conns.Done():
	case <-p.stopping.Done():
		grace := time.NewTimer(p.opts.arriving())
		defer grace.Stop()
		select {
		case <-ctx.Done():
		case <-conns.Done():
		case <-grace.C:
		}
	}
	stopConns()
}

// Memory is what the process holds of data now, and may hold, in bytes.
func (p *Pipeline) Memory() (used, limit int64) {
	return p.pool.InUse() + p.pool.Free(), p.credit.Limit()
}
