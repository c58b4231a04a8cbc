package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// Options are the limits of a target's connections.
type Options struct {
	Conns        int           // connections to one broker
	RequestBytes int           // a request is closed before it grows beyond this; a single larger batch still goes
	BudgetBytes  int           // bytes of batches under way on one connection, at most; a short path gets less
	MaxRequests  int           // requests under way on one connection
	LingerGap    time.Duration // a request that is not full follows the last one no sooner, while answers are missing
	AckTimeout   time.Duration // how long a broker waits for its replicas
	IdleTimeout  time.Duration // an idle connection is given up before the broker does it (connections.max.idle.ms)
	Backoff      cluster.Backoff
}

// Sink is the target side of a process: all connections that write to one cluster.
type Sink struct {
	cluster *cluster.Cluster
	opts    Options
	log     *slog.Logger
	looker  looker

	mu      sync.Mutex
	ctx     context.Context // Run's; nil before it, and after it has begun to end
	wg      sync.WaitGroup
	senders map[int32][]*sender
	topics  map[topicRef]*topicRef
	next    int // round robin over a broker's connections

	refresh  chan struct{}
	fatal    chan error
	throttle atomic.Int64 // milliseconds of silence that brokers asked for
}

// ErrNoLeader says that the target partition has no leader now, or that the topic does not exist.
var ErrNoLeader = errors.New("the partition has no leader")

// ErrMute says that the partition's leader has not answered for long.
var ErrMute = errors.New("the broker does not answer")

// ErrDown says that the partition's leader could not be reached by the last try.
var ErrDown = errors.New("the broker cannot be reached")

// New makes a sink for c. Run starts it.
func New(c *cluster.Cluster, opts Options, log *slog.Logger) *Sink {
	s := &Sink{cluster: c, opts: opts, log: log, senders: make(map[int32][]*sender), topics: make(map[topicRef]*topicRef),
		refresh: make(chan struct{}, 1), fatal: make(chan error, 1)}
	s.looker.init(s)
	return s
}

// Run keeps the connections until ctx ends, or until a broker refuses us for good (cluster.Fatal); when it returns, every
// entry has been answered.
func (s *Sink) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
	s.wg.Go(func() { s.looker.run(ctx) })
	cancel(s.refreshLoop(ctx))
	s.mu.Lock()
	s.ctx = nil
	s.mu.Unlock()
	s.wg.Wait()
	return context.Cause(ctx)
}

// give ends Run with an error that no retry cures.
func (s *Sink) give(err error) {
	select {
	case s.fatal <- err:
	default:
	}
}

// stale asks for fresh metadata; the cluster limits the rate.
func (s *Sink) stale() {
	select {
	case s.refresh <- struct{}{}:
	default:
	}
}

func (s *Sink) refreshLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-s.fatal:
			return err
		case <-s.refresh:
			if err := s.cluster.Refresh(ctx); err != nil && ctx.Err() == nil {
				s.log.Debug("metadata of the target", "err", err)
			}
		}
	}
}

func (s *Sink) throttled(d time.Duration) { s.throttle.Add(d.Milliseconds()) }

// ThrottleMillis is how long brokers have asked us to be silent, in all.
func (s *Sink) ThrottleMillis() int64 { return s.throttle.Load() }

// Stats are what all connections hold, for gauges.
type Stats struct {
	Flying, Queued int // batches' bytes in requests without an answer, and queued behind them
	Requests       int // without an answer
	Budget         int // bytes that may be under way, on all connections together
	Conns, Mute    int // connections, and those of them that do not answer
}

// Stats adds up all connections.
func (s *Sink) Stats() (n Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ss := range s.senders {
		for _, x := range ss {
			x.mu.Lock()
			n.Flying += x.flyingByte
			n.Queued += x.readyBytes
			n.Requests += len(x.flying)
			n.Budget += x.budget.Bytes()
			if x.mute {
				n.Mute++
			}
			x.mu.Unlock()
			n.Conns++
		}
	}
	return n
}

// Partition is the target side of one lane.
func (s *Sink) Partition(topic string, partition int32) lane.Sink {
	return &target{sink: s, topic: topic, partition: partition}
}

// target is one partition of the target.
type target struct {
	sink      *Sink
	topic     string
	partition int32
}

// leader finds the partition's leader in the cached metadata, and asks for fresh metadata where there is none.
func (t *target) leader() (broker, epoch int32, id [16]byte, err error) {
	topology := t.sink.cluster.Topology()
	if p, ok := topology.Leader(t.topic, t.partition); ok {
		return p.Leader, p.LeaderEpoch, topology.Topics[t.topic].ID, nil
	}
	t.sink.stale()
	return 0, 0, id, fmt.Errorf("%s/%d on %s: %w", t.topic, t.partition, t.sink.cluster.Alias(), ErrNoLeader)
}

// Open binds a lane to one of the connections to the partition's leader. to is called under the connection's lock: it must not
// block, nor call the stream.
func (t *target) Open(to func(lane.Completion)) (lane.Stream, error) {
	broker, _, id, err := t.leader()
	if err != nil {
		return nil, err
	}
	s := t.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil || s.ctx.Err() != nil {
		return nil, fmt.Errorf("open %s/%d on %s: the sink is not running", t.topic, t.partition, s.cluster.Alias())
	}
	if s.senders[broker] == nil {
		for range s.opts.Conns {
			x := newSender(s, broker)
			s.senders[broker] = append(s.senders[broker], x)
			ctx := s.ctx
			s.wg.Go(func() { x.run(ctx) })
		}
	}
	ref := topicRef{name: t.topic, id: id}
	topic := s.topics[ref]
	if topic == nil {
		topic = &ref
		s.topics[ref] = topic
	}
	all := s.senders[broker]
	x := all[s.next%len(all)]
	s.next++
	st := &stream{sender: x, topic: topic, partition: t.partition, to: to}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		return nil, fmt.Errorf("open %s/%d on %s: the connection is gone", t.topic, t.partition, s.cluster.Alias())
	}
	if x.mute {
		return nil, fmt.Errorf("open %s/%d on %s: broker %d: %w", t.topic, t.partition, s.cluster.Alias(), broker, ErrMute)
	}
	if x.down {
		x.wanted = true
		x.signal()
		return nil, fmt.Errorf("open %s/%d on %s: broker %d: %w", t.topic, t.partition, s.cluster.Alias(), broker, ErrDown)
	}
	key := slotKey{t.topic, t.partition}
	if x.slots[key] == nil {
		x.slots[key] = new(slot)
	}
	st.slot = x.slots[key]
	x.streams[st] = struct{}{}
	return st, nil
}

// Look asks the partition's leader what it holds of our writes.
func (t *target) Look(ctx context.Context, id batch.Identity, at lane.Position, scan bool) (lane.LookResult, error) {
	return t.sink.looker.look(ctx, t, id, at, scan)
}
