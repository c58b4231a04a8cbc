package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"
)

// maxRecords limits what one store holds in memory, in records: about 400 MB.
const maxRecords = 1 << 20

// Options say which store to open.
type Options struct {
	// NewClient makes a client of the target cluster with more options. The
	// store owns the client that it makes.
	NewClient  func(...kgo.Opt) (*kgo.Client, error)
	Alias      string        // the source's alias
	ClusterID  string        // the source's cluster id
	ReadOnly   bool          // create and write nothing; for verify and status
	FlushEvery time.Duration // between writes of marks; 0 means 1 s
	Log        *slog.Logger
}

// Store is the state of all links from one source cluster to one target. Its
// methods may be called by many goroutines; one lane has one caller at a time.
type Store struct {
	opts  Options
	topic string
	id    [16]byte
	cl    *kgo.Client

	// writing is held in part by each Put and as a whole by a flush, so that a
	// mark never overtakes a Put of the same lane.
	writing *semaphore.Weighted

	mu          sync.Mutex        // guards what follows
	aliases     map[string]string // cluster id -> alias
	links       map[string]Link
	producers   map[producer]int64
	starts      map[LaneKey]Start
	checkpoints map[LaneKey]Checkpoint // durable
	marks       map[LaneKey]mark       // not yet
}

type producer struct {
	link    string
	residue int32
}

// Open finds the state topic of a source by its cluster id, creates it where it
// is missing, and loads it to its end. It starts nothing that Close does not
// end. Errors: [ErrVersion], [ErrRecord], [ErrNoTopic] (read-only), or what the
// target answered, as a kerr error.
func Open(ctx context.Context, opts Options) (*Store, error) {
	opts.FlushEvery = cmp.Or(opts.FlushEvery, time.Second)
	cl, err := opts.NewClient(
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(5*time.Millisecond),
		// A doubled record is harmless here; a write that outlives its
		// deadline is not.
		kgo.AllowIdempotentProduceCancellation(),
	)
	if err != nil {
		return nil, fmt.Errorf("open state of %s: %w", opts.Alias, err)
	}
	s := &Store{
		opts: opts, cl: cl, writing: semaphore.NewWeighted(maxWriters),
		aliases:     make(map[string]string),
		links:       make(map[string]Link),
		producers:   make(map[producer]int64),
		starts:      make(map[LaneKey]Start),
		checkpoints: make(map[LaneKey]Checkpoint),
		marks:       make(map[LaneKey]mark),
	}
	if err := s.open(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("open state of %s: %w", opts.Alias, err)
	}
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	topic, err := s.find(ctx)
	if err != nil {
		return err
	}
	s.topic = topic
	info, err := ensure(ctx, s.cl, topic, !s.opts.ReadOnly)
	if err != nil {
		return err
	}
	s.id = info.id
	if err := checkPolicy(ctx, s.cl, topic); errors.Is(err, errNotShown) {
		s.opts.Log.Warn("cleanup.policy of the state topic not checked", "state_topic", topic, "err", err)
	} else if err != nil {
		return err
	}
	partitions := make([]int32, Shards)
	for p := range partitions {
		partitions[p] = int32(p)
	}
	if err := readAll(ctx, s.cl, topic, partitions, s.load); err != nil {
		return err
	}
	if s.opts.ReadOnly || s.aliases[s.opts.ClusterID] == s.opts.Alias {
		return nil
	}
	key := recordKey{Kind: kindCluster, Cluster: s.opts.ClusterID}
	return s.write(ctx, s.record(key, clusterValue{Alias: s.opts.Alias}))
}

// load takes one record of the topic into memory.
func (s *Store) load(r *kgo.Record) error {
	key, err := decodeKey(r.Key)
	if err != nil {
		return err
	}
	if !key.Kind.known() || key.Cluster != s.opts.ClusterID {
		return nil // a newer kferry's, or another source's that had this alias
	}
	if len(s.producers)+len(s.starts)+len(s.checkpoints) >= maxRecords {
		return fmt.Errorf("more than %d state records of one source", maxRecords)
	}
	switch key.Kind {
	case kindCluster:
		return loadInto(s.aliases, key.Cluster, r.Value, func(v clusterValue) (string, error) { return v.Alias, nil }, "alias")
	case kindLink:
		return loadInto(s.links, key.Link, r.Value, func(v Link) (Link, error) { return v, nil }, "first_start")
	case kindProducer:
		if key.Residue == nil {
			return fmt.Errorf("%w: a producer without a residue", ErrRecord)
		}
		return loadInto(s.producers, producer{key.Link, *key.Residue}, r.Value, func(v producerValue) (int64, error) {
			return v.PID, v.check()
		}, "pid")
	}
	lane, err := key.lane()
	if err != nil {
		return err
	}
	if key.Kind == kindStart {
		return loadInto(s.starts, lane, r.Value, func(v Start) (Start, error) {
			return v, v.check()
		}, "src_start", "dst_start")
	}
	if key.Epoch == nil {
		return fmt.Errorf("%w: a checkpoint without an epoch", ErrRecord)
	}
	if old, ok := s.checkpoints[lane]; ok && old.Epoch > *key.Epoch {
		return nil // a zombie's, or superseded
	}
	return loadInto(s.checkpoints, lane, r.Value, func(v Checkpoint) (Checkpoint, error) {
		v.Epoch = *key.Epoch
		return v, v.check()
	}, "src_next", "seq_next", "dst_next", "pid", "clean")
}

// loadInto decodes a value, checks it and puts it into m; no value deletes.
func loadInto[K comparable, W, V any](m map[K]V, k K, value []byte, check func(W) (V, error), needed ...string) error {
	if value == nil {
		delete(m, k)
		return nil
	}
	var w W
	if err := decodeValue(value, &w, needed...); err != nil {
		return err
	}
	v, err := check(w)
	if err == nil {
		m[k] = v
	}
	return err
}

// Topic returns the state topic's name and its id (zero where the target has no
// topic ids).
func (s *Store) Topic() (name string, id [16]byte) { return s.topic, s.id }

// Close ends the store's client. Marks not flushed are lost.
func (s *Store) Close() { s.cl.Close() }

// Link returns what is stored of a link; not ok means that it never started.
func (s *Store) Link(name string) (l Link, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok = s.links[name]
	return l, ok
}

// Producer returns a link's lasting producer id for the source partitions p
// with p / n == residue, n being the target's partition count (0 where nothing
// is folded).
func (s *Store) Producer(link string, residue int32) (pid int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, ok = s.producers[producer{link, residue}]
	return pid, ok
}

// Start returns where a lane began.
func (s *Store) Start(k LaneKey) (Start, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byLane(s.starts, k)
}

// Checkpoint returns a lane's last durable position; marks not yet written do
// not count.
func (s *Store) Checkpoint(k LaneKey) (Checkpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return byLane(s.checkpoints, k)
}

// byLane looks a lane up, then under the name alone: a source that had no topic
// ids when the record was written may have been upgraded since.
func byLane[V any](m map[LaneKey]V, k LaneKey) (V, bool) {
	v, ok := m[k]
	if !ok {
		k.TopicID = [16]byte{}
		v, ok = m[k]
	}
	return v, ok
}

// Checkpoints iterates over a copy of all durable checkpoints, in no order.
func (s *Store) Checkpoints() iter.Seq2[LaneKey, Checkpoint] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.All(maps.Clone(s.checkpoints))
}
