package pipeline

import (
	"context"
	"log/slog"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
	"kferry/pipeline/state"
)

// running is a lane with what the link knows of it.
type running struct {
	key     state.LaneKey
	target  string
	lane    *lane.Lane
	twice   int64 // records that an end which was not clean may have doubled
	frozen  bool  // parked before it began: its stored position stays as it is
	met     bool  // stood at this start of the link
	started time.Time
}

// original and copied name the lane's partition on both sides.
func (r *running) original() cluster.Place {
	return cluster.Place{Topic: r.key.Topic, Partition: r.key.Partition}
}

func (r *running) copied() cluster.Place {
	return cluster.Place{Topic: r.target, Partition: r.key.Partition}
}

// start finds where lanes begin and starts them: a few requests for all of them.
func (l *Link) start(ctx context.Context, fresh []*running) error {
	plan, failed, err := l.plan(ctx, fresh)
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
	// Other links may be about to start as many: the first one leaves them their shares.
	lanes := max(len(fresh)+l.laneCount(), len(fresh)*len(l.p.links))
	held := max(l.p.cfg.MemoryBytes/2/int64(lanes), 256<<10)
	opts := lane.DefaultOptions(l.p.tuning.Depth, held)
	opts.Ahead = int64(4 * l.p.tuning.PartitionBytes) // the next fetches
	now := time.Now()
	for _, s := range plan {
		m := lane.NewMachine(&opts, s.id, s.at, s.shared, now)
		if s.park != lane.NoReason {
			m.Park(s.park, s.detail, now)
		}
		l.launch(s, m)
	}
	l.p.limitHeap(l.laneCount())
	return l.blame(failed)
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

func (d *deferred) Deliver(x lane.Delivery) { d.lane.Deliver(x) }
func (d *deferred) Hungry() bool            { return d.lane.Hungry() }

func (l *Link) launch(s *laneStart, m *lane.Machine) {
	r := s.run
	var d deferred
	cursor := l.source.Open(r.key.Topic, r.key.TopicID, r.key.Partition, &d)
	log := func() *slog.Logger { return l.log.With("topic", r.key.Topic, "partition", r.key.Partition) }
	save := func(ctx context.Context, cp lane.Checkpoint) error {
		return l.store.PutCheckpoints(ctx, map[state.LaneKey]state.Checkpoint{r.key: stored(cp)})
	}
	r.lane = lane.New(m, cursor, l.sink.Partition(r.target, r.key.Partition), l.p.recoder, save, log)
	d.lane = r.lane
	r.lane.Notify(func() {
		l.mu.Lock()
		l.moved = append(l.moved, r)
		l.mu.Unlock()
	})
	r.frozen, r.twice = s.park != lane.NoReason, s.twice
	l.mu.Lock()
	l.lanes[r.original()] = r
	l.mu.Unlock()
	r.lane.Start(l.life, &l.wg)
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

// retireEvery is how often lanes are told that they need no goroutine while nothing happens.
const retireEvery = 5 * time.Second

// mark hands positions to the store, so that a change is stored within a second.
func (l *Link) mark(ctx context.Context) {
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	retire := time.NewTicker(retireEvery)
	defer retire.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-retire.C:
			for _, r := range l.running() {
				r.lane.Retire()
			}
			continue
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

// handOver stops the lanes, within the grace, and stores where they stand. It says whether all ended clean; the error is that of
// storing. stopMarks ends mark, and returns when it has ended: what that had looked at before the end must not be written over the end.
func (l *Link) handOver(ctx context.Context, stopMarks func()) (clean bool, err error) {
	lanes := l.running()
	for _, r := range lanes {
		r.lane.Stop()
	}
	grace, cancel := context.WithTimeout(ctx, l.p.opts.arriving())
	defer cancel()
	stop := context.AfterFunc(grace, l.endLanes)
	l.wg.Wait()
	stop()
	stopMarks()
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
	flush, cancel2 := context.WithTimeout(ctx, l.p.opts.Grace-l.p.opts.arriving())
	defer cancel2()
	defer context.AfterFunc(flush, l.store.Close)() // franz-go would wait longer, for the answers to what it has written
	if err := l.store.Flush(flush); err != nil {
		l.log.Error("positions not stored: the next start begins at the stored ones", "err", err)
		return false, err
	}
	return clean, nil
}

// stored is a lane's position as the state topic keeps it.
func stored(cp lane.Checkpoint) state.Checkpoint {
	return state.Checkpoint{SrcNext: cp.Src, SeqNext: int32(cp.Seq), DstNext: cp.Dst, PID: cp.ID.ProducerID, Epoch: cp.ID.Epoch,
		LeaderEpoch: cp.SrcEpoch, Clean: cp.Clean, Shared: cp.Shared}
}

func identity(cp state.Checkpoint) batch.Identity {
	return batch.Identity{ProducerID: cp.PID, Epoch: cp.Epoch}
}
