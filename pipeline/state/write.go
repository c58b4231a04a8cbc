package state

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	flushTimeout = 10 * time.Second // of one flush by Run
	maxWriters   = 1 << 20          // Puts at a time; a flush takes the place of all
)

// mark is a position that is not durable yet.
type mark struct {
	cp    Checkpoint
	since time.Time // when the first change after the last write was marked
}

// PutLink stores a link's record. Like every Put it returns once the target
// acknowledged with acks=all; after an error the record may be there or not,
// and the call may be repeated.
func (s *Store) PutLink(ctx context.Context, name string, l Link) error {
	key := recordKey{Kind: kindLink, Link: name, Cluster: s.opts.ClusterID}
	return s.put(ctx, func() { s.links[name] = l }, s.record(key, l))
}

// PutProducer stores a link's producer id, before the first batch under it.
func (s *Store) PutProducer(ctx context.Context, link string, residue int32, pid int64) error {
	key := recordKey{Kind: kindProducer, Link: link, Cluster: s.opts.ClusterID, Residue: &residue}
	return s.put(ctx, func() { s.producers[producer{link, residue}] = pid }, s.record(key, producerValue{PID: pid}))
}

// PutStarts stores where lanes begin, all in a few requests. At is set here.
func (s *Store) PutStarts(ctx context.Context, starts map[LaneKey]Start) error {
	stamped := make(map[LaneKey]Start, len(starts))
	records := make([]*kgo.Record, 0, len(starts))
	for lane, st := range starts {
		st.At = now()
		stamped[lane] = st
		records = append(records, s.record(laneRecordKey(kindStart, s.opts.ClusterID, lane), st))
	}
	return s.put(ctx, func() { maps.Copy(s.starts, stamped) }, records...)
}

// PutCheckpoints stores positions of lanes that stand still, all in a few
// requests: before its first batch every lane stores Clean=false, under a
// raised epoch where it has to, so that a crash is recognised. At is set here.
// A lane's older epoch is deleted behind the new one.
func (s *Store) PutCheckpoints(ctx context.Context, cps map[LaneKey]Checkpoint) error {
	stamped := make(map[LaneKey]Checkpoint, len(cps))
	records := make([]*kgo.Record, 0, len(cps))
	s.mu.Lock()
	for lane, cp := range cps {
		cp.At = now()
		stamped[lane] = cp
		records = append(records, s.checkpointRecord(lane, cp))
		if old, ok := s.checkpoints[lane]; ok && old.Epoch < cp.Epoch {
			records = append(records, s.tombstone(lane, old.Epoch))
		}
	}
	s.mu.Unlock()
	return s.put(ctx, func() {
		maps.Copy(s.checkpoints, stamped)
		for lane := range stamped {
			delete(s.marks, lane)
		}
	}, records...)
}

// put writes records, then notes them in memory.
func (s *Store) put(ctx context.Context, note func(), records ...*kgo.Record) error {
	if err := s.writing.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("write %s: %w", s.topic, context.Cause(ctx))
	}
	defer s.writing.Release(1)
	if err := s.write(ctx, records...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note()
	return nil
}

// Mark tells a lane's position: after acks, Clean=false while it runs, and
// Clean=true once it stands drained. It never blocks on the network: the latest
// mark of a lane is written by the next flush, and an unchanged one is not
// written at all. At is set here.
func (s *Store) Mark(k LaneKey, cp Checkpoint) {
	cp.At = now()
	s.mu.Lock()
	defer s.mu.Unlock()
	durable, ok := s.checkpoints[k]
	if ok && cp.Epoch < durable.Epoch {
		// The lane raised its epoch, and stored that, between our caller's look at it and this call: old news.
		return
	}
	m, marked := s.marks[k]
	if !marked {
		if ok && durable.same(cp) {
			return
		}
		m.since = cp.At
	}
	m.cp = cp
	s.marks[k] = m
}

// OldestMark returns since when the oldest unwritten change waits; zero if none
// does. Its age beyond a few seconds says that the target takes no state.
func (s *Store) OldestMark() (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.marks {
		if since.IsZero() || m.since.Before(since) {
			since = m.since
		}
	}
	return since
}

// Run writes marks every FlushEvery until ctx ends. What is marked then stays
// for [Store.Flush]. A write that fails is tried again: positions only get
// older meanwhile.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(s.opts.FlushEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		attempt, cancel := context.WithTimeout(ctx, flushTimeout)
		err := s.flush(attempt)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			s.opts.Log.Warn("checkpoints not written, trying again", "state_topic", s.topic, "err", err)
		case err == nil && failing:
			s.opts.Log.Info("checkpoints written again", "state_topic", s.topic)
		}
		failing = err != nil
	}
}

// Flush writes every mark and returns once all are durable, or with the error
// of the last attempt once ctx ends.
func (s *Store) Flush(ctx context.Context) error {
	for {
		err := s.flush(ctx)
		if err == nil {
			return nil
		}
		if sleep(ctx, stallWait) != nil {
			return err
		}
	}
}

func (s *Store) flush(ctx context.Context) error {
	if err := s.writing.Acquire(ctx, maxWriters); err != nil {
		return fmt.Errorf("write %s: %w", s.topic, context.Cause(ctx))
	}
	defer s.writing.Release(maxWriters)
	s.mu.Lock()
	began, marks := now(), maps.Clone(s.marks)
	s.mu.Unlock()
	records := make([]*kgo.Record, 0, len(marks))
	for lane, m := range marks {
		records = append(records, s.checkpointRecord(lane, m.cp))
	}
	if err := s.write(ctx, records...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for lane, written := range marks {
		s.checkpoints[lane] = written.cp
		m := s.marks[lane]
		if m.cp.same(written.cp) {
			delete(s.marks, lane)
			continue
		}
		m.since = began // marked again meanwhile
		s.marks[lane] = m
	}
	return nil
}

// write returns once the target holds all records, or with the first error.
func (s *Store) write(ctx context.Context, records ...*kgo.Record) error {
	if s.opts.ReadOnly {
		panic("BUG: write to a read-only store")
	}
	if len(records) == 0 {
		return nil
	}
	for _, res := range s.cl.ProduceSync(ctx, records...) {
		if res.Err != nil {
			return fmt.Errorf("write %s/%d: %w", s.topic, res.Record.Partition, res.Err)
		}
	}
	return nil
}

func (s *Store) record(key recordKey, value any) *kgo.Record {
	return &kgo.Record{Topic: s.topic, Partition: key.partition(), Key: key.encode(), Value: encodeValue(value)}
}

func (s *Store) checkpointRecord(lane LaneKey, cp Checkpoint) *kgo.Record {
	key := laneRecordKey(kindCheckpoint, s.opts.ClusterID, lane)
	key.Epoch = &cp.Epoch
	return s.record(key, cp)
}

func (s *Store) tombstone(lane LaneKey, epoch int16) *kgo.Record {
	r := s.checkpointRecord(lane, Checkpoint{Epoch: epoch})
	r.Value = nil
	return r
}

// now is cut to what the records hold, and without the monotonic reading, so
// that times compare equal after a round trip.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
