package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
	"kferry/pipeline/state"
)

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
	cluster.StageState.Enter() // its clients' goroutines, too
	store, err := state.Open(ctx, state.Options{NewClient: l.to.NewClient, Alias: l.cfg.From, ClusterID: fromID, FlushEvery: 700 * time.Millisecond, Log: l.log})
	cluster.StageControl.Enter()
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
		// The record is written when the first round is done, which may be long after the first batch: what has a checkpoint is ours.
		begun := make(map[string]bool)
		for key := range store.Checkpoints() {
			begun[key.Topic] = begun[key.Topic] || key.Link == l.cfg.Name
		}
		// What an earlier link copies is left alone.
		planned = slices.DeleteFunc(planned, func(t control.Topic) bool { return begun[t.Source] || l.earlier(&t) != "" })
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
	if known && record.Start != l.cfg.Start.String() {
		l.log.Info("another start than before: it counts for topics that the filter is widened onto, all others go on where they are", "was", record.Start, "start", l.cfg.Start.String())
	}
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
	if errors.Is(err, kerr.ClusterAuthorizationFailed) {
		err = fmt.Errorf("%w: kferry needs WRITE on a target topic, or IDEMPOTENT_WRITE on the cluster", err)
	}
	if err == nil && resp.ProducerID < 0 {
		err = fmt.Errorf("%w: producer id %d", cluster.ErrProtocol, resp.ProducerID)
	}
	if err != nil {
		return 0, fmt.Errorf("take a producer id from %s: %w", c.Alias(), err)
	}
	return resp.ProducerID, nil
}
