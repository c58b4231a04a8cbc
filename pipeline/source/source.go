package source

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
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
	Backoff        cluster.Backoff
}

// maxBatch is the largest batch that is asked for: what a broker with the largest message.max.bytes in use may hold.
const maxBatch = 64 << 20

// Source reads one cluster for one link.
type Source struct {
	cluster *cluster.Cluster
	opts    Options
	credit  *Credit
	pool    *batch.Pool
	log     *slog.Logger

	mu        sync.Mutex
	ctx       context.Context // Run's; nil outside of it
	wg        sync.WaitGroup
	cursors   map[*Cursor]struct{}
	homeless  map[*Cursor]struct{} // without a fetcher: no leader known
	readers   map[int32]*reader
	following map[*Cursor]struct{} // those that read from a follower
	alone     time.Time            // until then no rack is sent
	looked    time.Time            // when following was last looked through
	version   uint64               // of the topology that cursors were last placed by

	refresh chan struct{}
	fatal   chan error
	largest atomic.Int64 // the largest batch seen
	fetches atomic.Int64
	bytes   atomic.Int64
}

// reader is what reads from one broker.
type reader struct {
	quiet   *fetcher
	backlog []*fetcher
}

// New makes a source. credit bounds what its responses pin, pool is where they live. Run starts it.
func New(c *cluster.Cluster, opts Options, credit *Credit, pool *batch.Pool, log *slog.Logger) *Source {
	s := &Source{cluster: c, opts: opts, credit: credit, pool: pool, log: log,
		cursors: make(map[*Cursor]struct{}), homeless: make(map[*Cursor]struct{}), following: make(map[*Cursor]struct{}), readers: make(map[int32]*reader),
		refresh: make(chan struct{}, 1), fatal: make(chan error, 1)}
	s.largest.Store(1 << 20)
	return s
}

// Open makes a cursor for a partition. It delivers nothing before MoveTo and Ask. to is called under the source's lock, so that
// what one connection delivers cannot overtake what another one does: it must not block, nor call the cursor.
func (s *Source) Open(topic string, id [16]byte, partition int32, to func(lane.Delivery)) *Cursor {
	c := &Cursor{source: s, topic: topic, id: id, partition: partition, to: to, epoch: -1, leader: -1, replica: -1, maxBytes: int32(s.opts.PartitionBytes)}
	s.mu.Lock()
	s.cursors[c] = struct{}{}
	s.mu.Unlock()
	return c
}

// Run fetches until ctx ends, or until a broker refuses us for good (cluster.Fatal).
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
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

// route keeps cursors with their partitions' leaders.
func (s *Source) route(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond) // for cursors that wait
	defer ticker.Stop()
	for {
		topology := s.cluster.Topology()
		s.rehouse(topology)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-s.fatal:
			return err
		case <-topology.Changed():
			continue
		case <-s.refresh:
		case now := <-ticker.C:
			s.askAgain(now)
			if !s.due(now) {
				continue
			}
		}
		if err := s.cluster.Refresh(ctx); err != nil && ctx.Err() == nil {
			if cluster.Fatal(err) {
				return err
			}
			s.log.Debug("metadata of the source", "err", err)
		}
	}
}

// due says whether a cursor without a fetcher has waited long enough.
func (s *Source) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.homeless {
		if !now.Before(c.retryAt) {
			return true
		}
	}
	return false
}

// goneAfter is how long an error that fresh metadata should cure is taken in silence.
const goneAfter = 5 * time.Second

// missLocked has a cursor wait for its next try, longer each time: one partition that is down for days must not cost the cluster
// ten metadata requests a second.
func (s *Source) missLocked(c *Cursor) {
	now := time.Now()
	if c.misses == 0 {
		c.troubled = now
	}
	c.retryAt = now.Add(s.opts.Backoff.Next(rand.Float64, c.misses))
	c.misses++
	s.homeless[c] = struct{}{}
}

// rehouse moves cursors whose leader has changed and finds places for those that have none, if their time has come. Lanes are told
// of topics that are gone, or were deleted and created again under the same name: that is another log.
func (s *Source) rehouse(t *cluster.Topology) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.Version == 0 {
		return
	}
	changed := t.Version != s.version
	if changed {
		s.version = t.Version
		for c := range s.cursors {
			if c.fetcher == nil {
				continue
			}
			if p, ok := t.Leader(c.topic, c.partition); c.recreated(t) || ok && (c.fetcher.broker != c.brokerLocked(t, p) || c.leader != p.LeaderEpoch) {
				c.unfollowLocked()
				c.fetcher.removeLocked(c)
				s.homeless[c] = struct{}{}
			}
		}
	}
	now := time.Now()
	for c := range s.homeless {
		switch {
		case !c.wantsLocked():
			delete(s.homeless, c)
		case !changed && now.Before(c.retryAt):
		case t.Topics[c.topic] != nil:
			s.placeLocked(c)
		case c.misses > 0 && now.Sub(c.troubled) >= goneAfter:
			s.tellLocked(c, 3) // UNKNOWN_TOPIC_OR_PARTITION
		default:
			s.missLocked(c)
		}
	}
}

// recreated says that the topic's name now belongs to another log.
func (c *Cursor) recreated(t *cluster.Topology) bool {
	known := t.Topics[c.topic]
	return known != nil && c.id != [16]byte{} && known.ID != [16]byte{} && known.ID != c.id
}

// tellLocked gives an error to a cursor's lane; the place is not fetched again before its next MoveTo.
func (s *Source) tellLocked(c *Cursor, code int16) {
	if !c.wantsLocked() {
		return
	}
	c.setLocked(true, true)
	c.misses = 0
	if c.fetcher != nil {
		c.fetcher.removeLocked(c)
	}
	delete(s.homeless, c)
	c.to(lane.Delivery{Gen: c.gen, Code: code, HighWatermark: -1, LastStable: -1, LogStart: -1})
}

// placeLocked gives a cursor that asks to a fetcher of its leader, or of the follower that the leader has named.
func (s *Source) placeLocked(c *Cursor) {
	if c.fetcher != nil || !c.wantsLocked() {
		delete(s.homeless, c)
		return
	}
	t := s.cluster.Topology()
	if c.recreated(t) {
		s.tellLocked(c, 100) // UNKNOWN_TOPIC_ID
		return
	}
	p, ok := t.Leader(c.topic, c.partition)
	if !ok || s.ctx == nil {
		s.missLocked(c)
		return
	}
	delete(s.homeless, c)
	c.leader = p.LeaderEpoch
	broker := c.brokerLocked(t, p)
	r := s.readers[broker]
	if r == nil {
		r = &reader{quiet: newFetcher(s, broker, true)}
		s.start(r.quiet)
		for range s.opts.Conns {
			f := newFetcher(s, broker, false)
			r.backlog = append(r.backlog, f)
			s.start(f)
		}
		s.readers[broker] = r
	}
	r.pick().addLocked(c)
}

// pick gives the backlog fetcher with the fewest cursors that ask.
func (r *reader) pick() *fetcher {
	best := r.backlog[0]
	for _, f := range r.backlog[1:] {
		if f.asking < best.asking {
			best = f
		}
	}
	return best
}

func (s *Source) start(f *fetcher) {
	ctx := s.ctx
	s.wg.Go(func() { f.run(ctx) })
}

// Stats are for gauges.
func (s *Source) Stats() (fetches, bytes int64, conns, homeless int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.readers {
		conns += 1 + len(r.backlog)
	}
	return s.fetches.Load(), s.bytes.Load(), conns, len(s.homeless)
}
