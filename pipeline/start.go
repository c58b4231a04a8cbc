package pipeline

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kferry/batch"
	"kferry/pipeline/lane"
	"kferry/pipeline/state"
)

// laneStart is where and how one lane begins.
type laneStart struct {
	run    *running
	at     lane.Position
	id     batch.Identity
	shared bool
	park   lane.Reason // the lane starts parked
	detail string
}

// offsets are one kind of offset of many topics, as kadm lists them.
type offsets struct {
	list kadm.ListedOffsets
	what string
}

func (o offsets) of(topic string, partition int32) (int64, error) {
	x, ok := o.list.Lookup(topic, partition)
	switch {
	case !ok:
		return 0, fmt.Errorf("ask for the %s of %s/%d: no answer", o.what, topic, partition)
	case x.Err != nil:
		return 0, fmt.Errorf("ask for the %s of %s/%d: %w", o.what, topic, partition, x.Err)
	}
	return x.Offset, nil
}

// plan finds the place of every fresh lane: its checkpoint, else the start that was stored for it, else a start that is
// resolved now and stored at once.
func (l *Link) plan(ctx context.Context, fresh []*running, first bool) ([]*laneStart, error) {
	var sources, targets []string
	seen := make(map[string]bool)
	for _, r := range fresh {
		if !seen[r.key.Topic] {
			seen[r.key.Topic] = true
			sources, targets = append(sources, r.key.Topic), append(targets, r.target)
		}
	}
	list, err := l.to.Admin().ListEndOffsets(ctx, targets...)
	if err != nil {
		return nil, fmt.Errorf("ask %s for the ends of %d topics: %w", l.cfg.To, len(targets), err)
	}
	ends := offsets{list, "end"}
	starts, err := l.resolve(ctx, fresh, sources, ends, first)
	if err != nil {
		return nil, err
	}
	plan := make([]*laneStart, 0, len(fresh))
	for _, r := range fresh {
		s := &laneStart{run: r}
		end, err := ends.of(r.target, r.key.Partition)
		if err != nil {
			return nil, err
		}
		cp, ok := l.store.Checkpoint(r.key)
		switch {
		case ok:
			l.resume(s, cp, end)
		case l.recreated(r.key):
			s.park, s.detail = lane.RecreatedReason, "the topic has another id than the one that was copied"
			s.id = batch.Identity{ProducerID: l.pid}
			s.at = lane.Position{SrcEpoch: -1, Dst: end}
		default:
			// Nothing was ever sent: a checkpoint is stored before the first batch.
			s.id = batch.Identity{ProducerID: l.pid}
			s.at = lane.Position{Src: starts[r.key].SrcStart, SrcEpoch: -1, Dst: end}
			s.shared = l.cfg.OntoExisting
		}
		plan = append(plan, s)
	}
	return plan, nil
}

// resume goes on from a checkpoint. Without a clean end it may tell less than what was written: then a new epoch begins at
// it, so that nothing of the old one can mix in, and what was written beyond it is written again.
func (l *Link) resume(s *laneStart, cp state.Checkpoint, end int64) {
	s.id, s.shared = identity(cp), cp.Shared
	s.at = lane.Position{Src: cp.SrcNext, SrcEpoch: cp.LeaderEpoch, Dst: cp.DstNext, Seq: int64(cp.SeqNext)}
	if end < cp.DstNext {
		s.park = lane.TargetLostReason
		s.detail = fmt.Sprintf("the target ends at offset %d, %d was written before", end, cp.DstNext)
		return
	}
	if cp.Clean {
		s.shared = s.shared || end > cp.DstNext
		return
	}
	if cp.Epoch == math.MaxInt16 {
		s.park = lane.EpochsReason
		return
	}
	s.id.Epoch++
	s.at.Seq, s.at.Dst = 0, end
	if n := end - cp.DstNext; n > 0 {
		l.log.Warn("the last end was not clean: going back to the stored position", "topic", s.run.key.Topic, "partition", s.run.key.Partition,
			"src_offset", cp.SrcNext, "records_possibly_doubled", n)
	}
}

// recreated says whether the state knows the topic under another id.
func (l *Link) recreated(key state.LaneKey) bool {
	if l.oldIDs == nil {
		l.oldIDs = make(map[string][16]byte)
		for k := range l.store.Checkpoints() {
			if k.Link == l.cfg.Name {
				l.oldIDs[place(k.Topic, k.Partition)] = k.TopicID
			}
		}
	}
	id, known := l.oldIDs[place(key.Topic, key.Partition)]
	return known && id != key.TopicID
}

// resolve gives the starts of lanes without a checkpoint, and stores those that are new.
func (l *Link) resolve(ctx context.Context, fresh []*running, topics []string, ends offsets, first bool) (map[state.LaneKey]state.Start, error) {
	starts := make(map[state.LaneKey]state.Start)
	var asked []*running
	for _, r := range fresh {
		if _, ok := l.store.Checkpoint(r.key); ok {
			continue
		}
		if s, ok := l.store.Start(r.key); ok {
			starts[r.key] = s
			continue
		}
		asked = append(asked, r)
	}
	if len(asked) == 0 {
		return starts, nil
	}
	earliest, err := l.from.Admin().ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("ask %s for the starts of %d topics: %w", l.cfg.From, len(topics), err)
	}
	begin := offsets{earliest, "log start"}
	wanted := begin
	switch l.cfg.Start.Kind {
	case StartLatest:
		wanted, err = l.ends(ctx, topics)
	case StartTime:
		wanted.what = "offset at the start time"
		wanted.list, err = l.from.Admin().ListOffsetsAfterMilli(ctx, l.cfg.Start.Time.UnixMilli(), topics...)
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s for where to start: %w", l.cfg.From, err)
	}
	fromStart := make(map[state.LaneKey]state.Start)
	for _, r := range asked {
		from, how := begin, "zero"
		if first && l.startsAsTold(r.key.Topic) {
			from, how = wanted, string(l.cfg.Start.Kind)
		}
		src, err := from.of(r.key.Topic, r.key.Partition)
		if err != nil {
			return nil, err
		}
		dst, err := ends.of(r.target, r.key.Partition)
		if err != nil {
			return nil, err
		}
		fromStart[r.key] = state.Start{SrcStart: src, DstStart: dst, How: how}
		starts[r.key] = fromStart[r.key]
	}
	return starts, l.store.PutStarts(ctx, fromStart)
}

// startsAsTold says whether a topic that is met at the link's start, without a place of its own, begins at `start`: at the
// link's first start, and where its filter was widened onto the topic. Every other one was born since, and is copied from
// its first record.
func (l *Link) startsAsTold(topic string) bool {
	if l.first {
		return true
	}
	if l.widened == nil {
		return false
	}
	before, err := l.widened.Accepts(topic)
	return err == nil && !before
}

// ends asks where the source's topics end for this link's isolation.
func (l *Link) ends(ctx context.Context, topics []string) (offsets, error) {
	if l.cfg.Isolation == ReadCommitted {
		list, err := l.from.Admin().ListCommittedOffsets(ctx, topics...)
		return offsets{list, "stable end"}, err
	}
	list, err := l.from.Admin().ListEndOffsets(ctx, topics...)
	return offsets{list, "end"}, err
}

func (s Start) String() string {
	if s.Kind == StartTime {
		return s.Time.Format(time.RFC3339Nano)
	}
	return string(s.Kind)
}
