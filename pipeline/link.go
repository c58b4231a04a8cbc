package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/partitioner"
	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
	"kferry/pipeline/lane"
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
	first   bool                // the link never ran before
	widened *partitioner.Filter // the filter of the last run, where it was another one
	oldIDs  map[string][16]byte // topic ids in the state, by topic/partition

	mu       sync.Mutex
	phase    string // what the link is doing, for status
	lanes    map[state.LaneKey]*running
	byName   map[string]state.LaneKey // topic/partition → its lane
	problems map[string]string        // by topic: why it is not, or not fully, copied
	moved    []*running               // lanes whose position has changed since mark looked
	wg       sync.WaitGroup           // of lanes
	life     context.Context
	endLanes context.CancelFunc // ends all lanes at once
}

// running is a lane with what the link knows of it.
type running struct {
	key      state.LaneKey
	target   string
	lane     *lane.Lane
	startSrc int64 // where it began in this process
	frozen   bool  // parked before it began: its stored position stays as it is
	started  time.Time
	kill     context.CancelFunc
}

func newLink(p *Pipeline, cfg LinkConfig) (*Link, error) {
	filter, err := cfg.Filter()
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", cfg.Name, err)
	}
	log := p.log.With("link", cfg.Name)
	l := &Link{p: p, cfg: cfg, log: log, filter: filter, from: p.clusters[cfg.From], to: p.clusters[cfg.To], sink: p.sinks[cfg.To],
		phase: "connecting", lanes: make(map[state.LaneKey]*running), byName: make(map[string]state.LaneKey), problems: make(map[string]string)}
	l.source = source.New(l.from, p.sourceOptions(cfg), p.credit, p.pool, log.With("cluster", cfg.From))
	return l, nil
}

// retryEvery is the pause between tries of the control work that a link cannot start without.
const retryEvery = 2 * time.Second

// forever repeats f until it works, the link is stopped (ok is false), or f fails for good.
func (l *Link) forever(ctx context.Context, what string, f func(context.Context) error) (ok bool, err error) {
	for said := ""; ; {
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
		err := f(attempt)
		cancel()
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
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
		case <-l.p.stopping:
			return false, nil
		case <-time.After(retryEvery):
		}
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
	defer context.AfterFunc(ctx, l.store.Close)() // franz-go would wait for the answers to what it has written

	// The connections outlive the lanes: they answer for what lanes still wait for.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var background sync.WaitGroup
	failed := make(chan error, 2)
	background.Go(func() {
		if err := l.source.Run(inner); inner.Err() == nil {
			failed <- fmt.Errorf("link %s: read from %s: %w", l.cfg.Name, l.cfg.From, err)
		}
	})
	background.Go(func() { l.store.Run(inner) })
	background.Go(func() { l.mark(inner) })

	var job *job
	l.setPhase("running")
	err := l.follow(ctx, failed, &job)
	l.setPhase("handing over")
	clean := l.handOver(ctx)
	l.setPhase("stopped")
	stop()
	background.Wait()
	if err == nil && ctx.Err() == nil {
		l.log.Info("stopped", "clean", clean)
		return job.verdict()
	}
	return err
}

// connect reaches both clusters.
func (l *Link) connect(ctx context.Context) error {
	for _, c := range []*cluster.Cluster{l.from, l.to} {
		if err := c.Refresh(ctx); err != nil {
			return err
		}
	}
	from, err := l.from.ID(ctx)
	if err != nil {
		return err
	}
	to, err := l.to.ID(ctx)
	if err != nil {
		return err
	}
	if from == to && !l.cfg.AllowSameCluster {
		return fmt.Errorf("%w: %s and %s are one cluster (id %s): allow_same_cluster: true permits that", ErrRefused, l.cfg.From, l.cfg.To, from)
	}
	return nil
}

// open loads the link's state, refuses what would copy over data that it does not know, and takes the producer id.
func (l *Link) open(ctx context.Context) error {
	fromID, err := l.from.ID(ctx)
	if err != nil {
		return err
	}
	toID, err := l.to.ID(ctx)
	if err != nil {
		return err
	}
	store, err := state.Open(ctx, state.Options{NewClient: l.to.NewClient, Alias: l.cfg.From, ClusterID: fromID, FlushEvery: 700 * time.Millisecond, Log: l.log})
	if err != nil {
		return err
	}
	if err := l.prepare(ctx, store, toID); err != nil {
		store.Close()
		return err
	}
	l.mu.Lock()
	l.store = store
	l.mu.Unlock()
	return nil
}

func (l *Link) prepare(ctx context.Context, store *state.Store, toID string) error {
	topics, err := l.control(ctx, toID)
	if err != nil {
		return err
	}
	l.topics = topics
	record, known := store.Link(l.cfg.Name)
	if !known {
		planned, err := topics.Plan(ctx)
		if err != nil {
			return err
		}
		full, err := control.NotEmpty(ctx, l.to.Client(), planned)
		if err != nil {
			return err
		}
		if len(full) > 0 && !l.cfg.OntoExisting {
			return fmt.Errorf("%w: link %s has no state on %s, and %s there: a copy would append to them; empty or delete them, "+
				"exclude them, or set onto_existing: true", ErrRefused, l.cfg.Name, l.cfg.To, holdRecords(full))
		}
		record = state.Link{FirstStart: time.Now().UTC()}
	}
	l.widened = nil
	if known && !(slices.Equal(record.Include, l.cfg.Topics.Include) && slices.Equal(record.Exclude, l.cfg.Topics.Exclude)) {
		// Topics that the filter did not take before begin where the link is told to start, not at 0.
		l.widened, err = partitioner.NewFilter(record.Include, record.Exclude, l.cfg.Topics.ExcludeInternal)
		if err != nil {
			return fmt.Errorf("read the link's recorded filter: %w", err)
		}
	}
	l.first = !known
	record.Include, record.Exclude = l.cfg.Topics.Include, l.cfg.Topics.Exclude
	record.Naming, record.Start = string(l.cfg.Naming.Kind), l.cfg.Start.String()
	l.record = record

	pid, ok := store.Producer(l.cfg.Name, 0)
	if !ok {
		if pid, err = newProducerID(ctx, l.to); err != nil {
			return err
		}
		if err := store.PutProducer(ctx, l.cfg.Name, 0, pid); err != nil {
			return err
		}
	}
	l.pid = pid
	return nil
}

// control makes the link's view of topics, with all that is known of aliases.
func (l *Link) control(ctx context.Context, toID string) (*control.Topics, error) {
	aliases := make(control.Aliases)
	for alias, c := range l.p.clusters {
		aliases.Add(alias, c.Topology().ClusterID)
	}
	if l.cfg.Naming.Kind == partitioner.Prefix {
		seen, hidden, err := state.ReadClusters(ctx, l.from.Client())
		if err != nil {
			return nil, err
		}
		for _, c := range seen {
			aliases.Add(c.Alias, c.ID)
		}
		if len(hidden) > 0 {
			l.log.Warn("state topics on the source cannot be read: copies that came from clusters they tell of are not recognised by their prefix",
				"state_topics", hidden, "cure", "grant READ on them to kferry's principal on the source")
		}
	}
	t := &control.Topics{Source: l.from.Client(), Target: l.to.Client(), Filter: l.filter, Log: l.log}
	namer := l.cfg.Namer(aliases.Names())
	t.Namer = namer
	if l.cfg.Naming.Kind == partitioner.Prefix {
		t.Namer = control.Acyclic{Namer: namer, Aliases: aliases, Separator: l.cfg.Separator, TargetID: toID}
	}
	return t, nil
}

func holdRecords(topics []string) string {
	const most = 10
	verb := "holds records"
	if len(topics) > 1 {
		verb = "hold records"
	}
	if n := len(topics) - most; n > 0 {
		return fmt.Sprintf("%s and %d more topics %s", strings.Join(topics[:most], ", "), n, verb)
	}
	return strings.Join(topics, ", ") + " " + verb
}

// newProducerID takes a producer id for good: a broker never checks who owns one for plain data.
func newProducerID(ctx context.Context, c *cluster.Cluster) (int64, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(ctx, c.Client())
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("take a producer id from %s: %w: kferry needs WRITE on a target topic, or IDEMPOTENT_WRITE on the cluster", c.Alias(), err)
	}
	return resp.ProducerID, nil
}

// follow keeps the lanes in step with the source's topics until the link is to stop, in job mode until all is copied.
func (l *Link) follow(ctx context.Context, failed <-chan error, j **job) error {
	refresh := time.NewTimer(0)
	defer refresh.Stop()
	check := time.NewTicker(200 * time.Millisecond)
	defer check.Stop()
	synced := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-l.p.stopping:
			return nil
		case <-refresh.C:
			wait := l.cfg.Refresh
			if err := l.sync(ctx, !synced); err == nil {
				synced = true
			} else if ctx.Err() == nil {
				if errors.Is(err, ErrRefused) || cluster.Fatal(err) {
					return fmt.Errorf("link %s: %w", l.cfg.Name, err)
				}
				l.log.Warn("cannot follow the topics, trying again", "err", err)
				wait = min(wait, retryEvery)
			}
			refresh.Reset(wait)
		case <-check.C:
			if !l.p.opts.UntilCaughtUp || !synced {
				continue
			}
			if *j == nil {
				*j = newJob(l)
			}
			if (*j).done() {
				return nil
			}
		}
	}
}

// sync creates and grows target topics and starts lanes for partitions that have none.
func (l *Link) sync(ctx context.Context, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	topics, err := l.topics.Sync(ctx)
	if err != nil {
		return err
	}
	if err := l.from.Refresh(ctx); err != nil {
		return err
	}
	if err := l.to.Refresh(ctx); err != nil {
		return err
	}
	if fresh := l.fresh(topics); len(fresh) > 0 {
		if err := l.start(ctx, fresh, first); err != nil {
			return err
		}
	}
	if first {
		return l.store.PutLink(ctx, l.cfg.Name, l.record)
	}
	return nil
}

// fresh lists the partitions that need a lane and notes what stands in a topic's way.
func (l *Link) fresh(topics []control.Topic) []*running {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fresh []*running
	problems := make(map[string]string)
	for i := range topics {
		t := &topics[i]
		switch {
		case errors.Is(t.Err, control.ErrNotForwarded):
			l.log.Debug("topic not forwarded", "topic", t.Source, "why", t.Err)
			continue
		case t.Err != nil:
			problems[t.Source] = t.Err.Error()
		}
		if t.Target == "" || t.TargetPartitions == 0 {
			continue
		}
		if _, err := partitioner.NewMapper(t.Source, t.SourcePartitions, t.TargetPartitions); err != nil && t.Err == nil {
			problems[t.Source] = err.Error()
		}
		for p := range min(t.SourcePartitions, t.TargetPartitions) {
			key := state.LaneKey{Link: l.cfg.Name, Topic: t.Source, TopicID: t.SourceID, Partition: p}
			name := place(t.Source, p)
			if _, known := l.byName[name]; known {
				continue // also when the id is another one: the source tells that lane
			}
			fresh = append(fresh, &running{key: key, target: t.Target, started: time.Now()})
		}
	}
	for topic, why := range problems {
		if l.problems[topic] != why {
			l.log.Error("topic not copied as it should be", "topic", topic, "err", why)
		}
	}
	l.problems = problems
	return fresh
}

// original and copied name the lane's partition on both sides.
func (r *running) original() cluster.Place {
	return cluster.Place{Topic: r.key.Topic, Partition: r.key.Partition}
}
func (r *running) copied() cluster.Place {
	return cluster.Place{Topic: r.target, Partition: r.key.Partition}
}

func place(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

// start finds where lanes begin and starts them: a few requests for all of them.
func (l *Link) start(ctx context.Context, fresh []*running, first bool) error {
	plan, failed, err := l.plan(ctx, fresh, first)
	if err != nil {
		return err
	}
	checkpoints := make(map[state.LaneKey]state.Checkpoint, len(plan))
	for _, s := range plan {
		if s.park == lane.NoReason {
			checkpoints[s.run.key] = stored(lane.Checkpoint{Position: s.at, ID: s.id, Shared: s.shared})
		}
	}
	// Durable before the first batch: from here on an end that is not clean can be told.
	if err := l.store.PutCheckpoints(ctx, checkpoints); err != nil {
		return err
	}
	held := max(l.p.cfg.MemoryBytes/2/int64(len(fresh)+l.laneCount()), 256<<10)
	now := time.Now()
	for _, s := range plan {
		m := lane.NewMachine(lane.DefaultOptions(l.p.tuning.Depth, held), s.id, s.at, s.shared, now)
		if s.park != lane.NoReason {
			m.Park(s.park, s.detail, now)
		}
		l.launch(s, m)
	}
	return l.blame(failed)
}

// blame notes the topics that may not be asked about as problems. What another try cures comes back as an error.
func (l *Link) blame(failed map[string]error) (again error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, err := range failed {
		if !errors.Is(err, kerr.TopicAuthorizationFailed) {
			again = err
			continue
		}
		if l.problems[topic] != err.Error() {
			l.log.Error("topic not copied as it should be", "topic", topic, "err", err)
		}
		l.problems[topic] = err.Error()
	}
	return again
}

func (l *Link) laneCount() int {
	n := 0
	for _, x := range l.p.links {
		x.mu.Lock()
		n += len(x.lanes)
		x.mu.Unlock()
	}
	return n
}

// deferred lets the cursor deliver to a lane that is made after it.
type deferred struct{ lane *lane.Lane }

func (d *deferred) deliver(x lane.Delivery) { d.lane.Deliver(x) }

func (l *Link) launch(s *laneStart, m *lane.Machine) {
	r := s.run
	var d deferred
	cursor := l.source.Open(r.key.Topic, r.key.TopicID, r.key.Partition, d.deliver)
	log := l.log.With("topic", r.key.Topic, "partition", r.key.Partition)
	save := func(ctx context.Context, cp lane.Checkpoint) error {
		return l.store.PutCheckpoints(ctx, map[state.LaneKey]state.Checkpoint{r.key: stored(cp)})
	}
	r.lane = lane.New(m, cursor, l.sink.Partition(r.target, r.key.Partition), save, log)
	d.lane = r.lane
	r.lane.Notify(func() {
		l.mu.Lock()
		l.moved = append(l.moved, r)
		l.mu.Unlock()
	})
	r.startSrc, r.frozen = s.at.Src, s.park != lane.NoReason
	l.mu.Lock()
	l.lanes[r.key] = r
	l.byName[place(r.key.Topic, r.key.Partition)] = r.key
	l.mu.Unlock()
	cursor.Ask()
	l.wg.Go(func() { r.lane.Run(l.life) })
}

// running lists the lanes in no order.
func (l *Link) running() []*running {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*running, 0, len(l.lanes))
	for _, r := range l.lanes {
		all = append(all, r)
	}
	return all
}

// mark hands positions to the store, so that a change is stored within a second.
func (l *Link) mark(ctx context.Context) {
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.mu.Lock()
		moved := l.moved
		l.moved = nil
		l.mu.Unlock()
		for _, r := range moved {
			if cp, news := r.lane.Moved(); news && !r.frozen {
				cp.Clean = false // the last word is handOver's
				l.store.Mark(r.key, stored(cp))
			}
		}
	}
}

// handOver stops the lanes, within the grace, and stores where they stand. It says whether all ended clean.
func (l *Link) handOver(ctx context.Context) (clean bool) {
	lanes := l.running()
	for _, r := range lanes {
		r.lane.Stop()
	}
	grace, cancel := context.WithTimeout(ctx, l.p.opts.Grace)
	defer cancel()
	stop := context.AfterFunc(grace, l.endLanes)
	l.wg.Wait()
	stop()
	clean = true
	for _, r := range lanes {
		st := r.lane.Status()
		clean = clean && st.Clean
		if st.State == lane.Stopped && st.Reason != lane.NoReason && !st.Clean {
			l.log.Warn("lane ended in doubt", "topic", r.key.Topic, "partition", r.key.Partition, "reason", string(st.Reason), "detail", st.Detail)
		}
		if !r.frozen {
			l.store.Mark(r.key, stored(st.Checkpoint))
		}
	}
	flush, cancel2 := context.WithTimeout(ctx, 10*time.Second)
	defer cancel2()
	if err := l.store.Flush(flush); err != nil {
		l.log.Error("positions not stored: the next start begins at the stored ones", "err", err)
		return false
	}
	return clean
}

// stored is a lane's position as the state topic keeps it.
func stored(cp lane.Checkpoint) state.Checkpoint {
	return state.Checkpoint{SrcNext: cp.Src, SeqNext: int32(cp.Seq), DstNext: cp.Dst, PID: cp.ID.ProducerID, Epoch: cp.ID.Epoch,
		LeaderEpoch: cp.SrcEpoch, Clean: cp.Clean, Shared: cp.Shared}
}

func identity(cp state.Checkpoint) batch.Identity {
	return batch.Identity{ProducerID: cp.PID, Epoch: cp.Epoch}
}
