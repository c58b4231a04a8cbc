package pipeline

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
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
	twice  int64       // records behind the stored position that are on the target and will be written again
	detail string
}

// plan finds the place of every fresh lane: its checkpoint, else the start that was stored for it, else a start that is
// resolved now and stored at once. A partition that does not answer is left out, with its error by topic.
func (l *Link) plan(ctx context.Context, fresh []*running) (plan []*laneStart, failed map[string]error, err error) {
	failed = make(map[string]error)
	targets := make([]cluster.Place, len(fresh))
	for i, r := range fresh {
		targets[i] = r.copied()
	}
	ends := l.to.Offsets(ctx, targets, cluster.Latest, false)
	fresh = slices.DeleteFunc(fresh, func(r *running) bool {
		if err := ends[r.copied()].Err; err != nil {
			failed[r.key.Topic] = err
			return true
		}
		return false
	})
	starts, err := l.resolve(ctx, fresh, ends, failed)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range fresh {
		s := &laneStart{run: r}
		end := ends[r.copied()].Offset
		cp, resumed := l.store.Checkpoint(r.key)
		start, begun := starts[r.key]
		switch {
		case resumed && l.fellShort(r, cp, end):
			failed[r.key.Topic] = fmt.Errorf("%s ends at offset %d, %d was written before: asking again", r.copied(), end, cp.DstNext)
			continue
		case resumed:
			l.resume(s, cp, end)
			if was, ok := l.store.Start(r.key); ok && was.Target != "" && was.Target != r.target {
				// The position speaks of another log; what stands in this one may be anybody's.
				s.park = lane.TargetLostReason
				s.detail = fmt.Sprintf("it was copied to %s so far, alias and naming now make that %s: change them back, or give the link a new name", was.Target, r.target)
			}
		case l.recreated(r.key):
			s.park, s.detail = lane.RecreatedReason, "the topic has another id than the one that was copied"
			s.id = batch.Identity{ProducerID: l.pid}
			s.at = lane.Position{SrcEpoch: -1, Dst: end}
		case begun:
			// Nothing was ever sent: a checkpoint is stored before the first batch.
			s.id = batch.Identity{ProducerID: l.pid}
			s.at = lane.Position{Src: start.SrcStart, SrcEpoch: -1, Dst: end}
			s.shared = l.cfg.OntoExisting
		default:
			continue // its start is not known yet
		}
		plan = append(plan, s)
	}
	return plan, failed, nil
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
		s.twice = n
		l.log.Warn("the last end was not clean: going back to the stored position", "topic", s.run.key.Topic, "partition", s.run.key.Partition,
			"src_offset", cp.SrcNext, "records_possibly_doubled", n)
	}
}

// shortFor is how long a target has to end before what was written to it until that is believed: a broker that has not heard
// of a new leader yet may say so for a moment.
const shortFor = 5 * time.Second

// fellShort says that the target seems to have lost what was written to it, and that it is too early to believe that.
func (l *Link) fellShort(r *running, cp state.Checkpoint, end int64) bool {
	if end >= cp.DstNext {
		delete(l.short, r.key)
		return false
	}
	if l.short[r.key].IsZero() {
		l.short[r.key] = time.Now()
	}
	return time.Since(l.short[r.key]) < shortFor
}

// recreated says whether the state knows the topic under another id.
func (l *Link) recreated(key state.LaneKey) bool {
	if l.oldIDs == nil {
		l.oldIDs = make(map[cluster.Place][16]byte)
		for k := range l.store.Checkpoints() {
			if k.Link == l.cfg.Name {
				l.oldIDs[cluster.Place{Topic: k.Topic, Partition: k.Partition}] = k.TopicID
			}
		}
	}
	id, known := l.oldIDs[cluster.Place{Topic: key.Topic, Partition: key.Partition}]
	return known && id != key.TopicID
}

// resolve gives the starts of lanes without a checkpoint, and stores those that are new.
func (l *Link) resolve(ctx context.Context, fresh []*running, ends map[cluster.Place]cluster.Offset, failed map[string]error) (map[state.LaneKey]state.Start, error) {
	starts := make(map[state.LaneKey]state.Start)
	var told, zero []*running
	for _, r := range fresh {
		if _, ok := l.store.Checkpoint(r.key); ok {
			continue
		}
		if s, ok := l.store.Start(r.key); ok {
			starts[r.key] = s
			continue
		}
		if r.met && l.startsAsTold(r.key.Topic) {
			told = append(told, r)
		} else {
			zero = append(zero, r)
		}
	}
	found := make(map[state.LaneKey]state.Start)
	ask := func(lanes []*running, at int64, how string) {
		places := make([]cluster.Place, len(lanes))
		for i, r := range lanes {
			places[i] = r.original()
		}
		offsets := l.from.Offsets(ctx, places, at, l.cfg.Isolation == ReadCommitted)
		for _, r := range lanes {
			o := offsets[r.original()]
			if o.Err != nil {
				failed[r.key.Topic] = o.Err
				continue
			}
			found[r.key] = state.Start{SrcStart: o.Offset, DstStart: ends[r.copied()].Offset, Target: r.target, How: how}
		}
	}
	if len(told) > 0 {
		at := cluster.Earliest
		switch l.cfg.Start.Kind {
		case StartLatest:
			at = cluster.Latest
		case StartTime:
			at = l.cfg.Start.Time.UnixMilli()
		}
		ask(told, at, l.cfg.Start.String())
	}
	if len(zero) > 0 {
		ask(zero, cluster.Earliest, "zero")
	}
	maps.Copy(starts, found)
	if len(found) == 0 {
		return starts, nil
	}
	return starts, l.store.PutStarts(ctx, found)
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

func (s Start) String() string {
	if s.Kind == StartTime {
		return s.Time.Format(time.RFC3339Nano)
	}
	return string(s.Kind)
}
