package source

import (
	"context"
	"math/rand/v2"
	"time"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// reader is what reads from one broker.
type reader struct {
	quiet   []*fetcher // one, and more while feeds of a partition stand at different places
	backlog []*fetcher // at least Options.Conns
}

// route keeps feeds with their partitions' leaders.
func (s *Source) route(ctx context.Context) error {
	ticker := time.NewTicker(100 * time.Millisecond) // for feeds that wait
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

// due says whether a feed without a fetcher has waited long enough.
func (s *Source) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.homeless {
		if !now.Before(f.retryAt) {
			return true
		}
	}
	return false
}

// goneAfter is how long an error that fresh metadata should cure is taken in silence.
const goneAfter = 5 * time.Second

// missLocked has a feed wait for its next try, longer each time: one partition that is down for days must not cost the cluster
// ten metadata requests a second.
func (s *Source) missLocked(f *feed) {
	now := time.Now()
	if f.misses == 0 {
		f.troubled = now
	}
	f.retryAt = now.Add(s.opts.Backoff.Next(rand.Float64, f.misses))
	f.misses++
	s.homeless[f] = struct{}{}
}

// rehouse moves feeds whose leader has changed and finds places for those that have none, if their time has come. Lanes are told
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
		for _, part := range s.partitions {
			for _, f := range part.feeds {
				if f.fetcher == nil {
					continue
				}
				if p, ok := t.Leader(part.topic, part.number); part.recreated(t) || ok && (f.fetcher.broker != f.brokerLocked(t, p) || f.leader != p.LeaderEpoch) {
					f.unfollowLocked()
					f.fetcher.removeLocked(f)
					s.homeless[f] = struct{}{}
				}
			}
		}
	}
	now := time.Now()
	for f := range s.homeless {
		switch {
		case !f.wantsLocked():
			delete(s.homeless, f)
		case !changed && now.Before(f.retryAt):
		case t.Topics[f.part.topic] != nil:
			s.placeLocked(f)
		case f.misses > 0 && now.Sub(f.troubled) >= goneAfter:
			s.tellLocked(f, 3) // UNKNOWN_TOPIC_OR_PARTITION
		default:
			s.missLocked(f)
		}
	}
}

// tellLocked gives an error to a feed's lanes; the place is not fetched again before the next MoveTo.
func (s *Source) tellLocked(f *feed, code int16) {
	if !f.wantsLocked() {
		return
	}
	f.stickLocked()
	f.misses = 0
	if f.fetcher != nil {
		f.fetcher.removeLocked(f)
	}
	delete(s.homeless, f)
	f.deliverLocked(lane.Delivery{Code: code, HighWatermark: -1, LastStable: -1, LogStart: -1})
}

// placeLocked gives a feed that asks to a fetcher of its leader, or of the follower that the leader has named.
func (s *Source) placeLocked(f *feed) {
	delete(s.homeless, f)
	delete(s.waiting, f)
	if f.fetcher != nil || !f.wantsLocked() {
		return
	}
	t := s.cluster.Topology()
	if f.part.recreated(t) {
		s.tellLocked(f, 100) // UNKNOWN_TOPIC_ID
		return
	}
	if f.earlyLocked(time.Now()) {
		s.waiting[f] = struct{}{}
		s.watchLocked()
		return
	}
	p, ok := t.Leader(f.part.topic, f.part.number)
	if !ok || s.ctx == nil {
		s.missLocked(f)
		return
	}
	f.leader = p.LeaderEpoch
	broker := f.brokerLocked(t, p)
	s.pickLocked(&s.readerLocked(broker).backlog, f.part, broker, false).addLocked(f)
}

func (s *Source) readerLocked(broker int32) *reader {
	r := s.readers[broker]
	if r == nil {
		r = &reader{quiet: []*fetcher{newFetcher(s, broker, true)}}
		s.start(r.quiet[0])
		for range s.opts.Conns {
			f := newFetcher(s, broker, false)
			r.backlog = append(r.backlog, f)
			s.start(f)
		}
		s.readers[broker] = r
	}
	return r
}

// pickLocked gives the fetcher with the fewest feeds that ask, of those that do not have the partition, and makes one if all do:
// feeds of a partition at different places need different sessions.
func (s *Source) pickLocked(of *[]*fetcher, p *partition, broker int32, quiet bool) *fetcher {
	var best *fetcher
	for _, x := range *of {
		if (best == nil || x.asking < best.asking) && !x.has(p) {
			best = x
		}
	}
	if best == nil {
		best = newFetcher(s, broker, quiet)
		*of = append(*of, best)
		s.start(best)
	}
	return best
}

func (s *Source) start(f *fetcher) {
	if ctx := s.ctx; ctx != nil { // else Run is about to return
		s.wg.Go(func() { f.run(ctx) })
	}
}
