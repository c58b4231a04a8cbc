package source

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
)

// Options are the limits of reading one source. Sizes are bytes.
type Options struct {
	FetchBytes     int           // of one response, at most; what the path can use is found by itself
	PartitionBytes int           // of one partition in a response; a larger batch is asked for by its size
	Conns          int           // connections for backlog to one broker
	QuietWait      time.Duration // how long a fetch of quiet partitions may wait at the broker
	BacklogWait    time.Duration // the same for partitions that lately had a backlog
	QuietAfter     time.Duration // without records for this long, a partition is quiet
	ReadCommitted  bool
	Links          int // that share the source; see Source.Started
	Backoff        cluster.Backoff
}

// maxBatch is the largest batch that is asked for: what a broker with the largest message.max.bytes in use may hold.
const maxBatch = 64 << 20

// Source reads one cluster for all links that read it under one isolation.
type Source struct {
	cluster *cluster.Cluster
	opts    Options
	credit  *Credit
	pool    *batch.Pool
	log     *slog.Logger

	mu         sync.Mutex
	ctx        context.Context // Run's; nil outside of it
	wg         sync.WaitGroup
	partitions map[partitionKey]*partition
	homeless   map[*feed]struct{} // without a fetcher: no leader known
	waiting    map[*feed]struct{} // without a fetcher: other links are about to begin at the same place
	paused     map[*feed]struct{} // a member holds
	gate       gate
	readers    map[int32]*reader
	following  map[*feed]struct{} // those that read from a follower
	alone      time.Time          // until then no rack is sent
	looked     time.Time          // when following was last looked through
	version    uint64             // of the topology that feeds were last placed by
	soon       *time.Timer        // for watch
	watched    bool               // soon is set
	judging    time.Duration      // how long the last look took

	refresh  chan struct{}
	fatal    chan error
	largest  atomic.Int64 // the largest batch seen
	claimed  atomic.Int64 // what a header says of a batch that is larger than was asked for, until it has come; 0 for none
	fetches  atomic.Int64
	bytes    atomic.Int64
	throttle atomic.Int64 // milliseconds of silence that brokers asked for
}

// New makes a source. credit bounds what its responses pin, pool is where they live. Run starts it.
func New(c *cluster.Cluster, opts Options, credit *Credit, pool *batch.Pool, log *slog.Logger) *Source {
	s := &Source{cluster: c, opts: opts, credit: credit, pool: pool, log: log,
		partitions: make(map[partitionKey]*partition), homeless: make(map[*feed]struct{}), waiting: make(map[*feed]struct{}),
		paused: make(map[*feed]struct{}), following: make(map[*feed]struct{}), readers: make(map[int32]*reader),
		refresh: make(chan struct{}, 1), fatal: make(chan error, 1), soon: time.NewTimer(time.Hour)}
	if opts.Links > 1 {
		s.gate.links = opts.Links
	}
	s.largest.Store(1 << 20)
	return s
}

// Run fetches until ctx ends, or until a broker refuses us for good (cluster.Fatal).
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	s.wg.Go(func() { s.watch(ctx) })
	cancel(s.route(ctx))
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.wg.Wait()
	return context.Cause(ctx)
}

func (s *Source) give(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// stale asks for fresh metadata; the cluster limits the rate.
func (s *Source) stale() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

// Stats are for gauges.
type Stats struct {
	Fetches, Bytes int64 // responses, and what they held, since the start
	ThrottleMillis int64 // how long brokers have asked us to be silent, on all connections together
	Conns          int   // to fetch by
	Homeless       int   // feeds without a leader to read from
	Partitions     int   // with cursors
	Feeds          int   // places that partitions are read at
}

// Stats takes a snapshot.
func (s *Source) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := Stats{Fetches: s.fetches.Load(), Bytes: s.bytes.Load(), ThrottleMillis: s.throttle.Load(), Homeless: len(s.homeless), Partitions: len(s.partitions)}
	for _, r := range s.readers {
		n.Conns += len(r.quiet) + len(r.backlog)
	}
	for _, p := range s.partitions {
		n.Feeds += len(p.feeds)
	}
	return n
}
