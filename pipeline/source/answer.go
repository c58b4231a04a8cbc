package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

var errSession = errors.New("the broker does not know the fetch session")

// take hands a response's parts to the lanes.
func (f *fetcher) take(conn *cluster.Conn, resp cluster.Response) error {
	err := f.walker.walk(resp.Body, resp.Version, func(h head) error {
		f.mute(h.throttle)
		switch h.code {
		case 0:
		case 70, 71, 106: // FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
			return errSession
		default:
			return fmt.Errorf("fetch from %s: %w", conn, kerr.ErrorForCode(h.code))
		}
		if resp.Version >= fetchSession {
			switch {
			case h.session == 0 && h.throttle > 0:
				f.session, f.epoch = 0, 0 // FullFetchContext.getThrottledResponse makes no session: ask for one again
			case h.session == 0:
				f.session, f.epoch = 0, -1 // the broker has no room for a session: full requests then
			case f.epoch <= 0 || f.epoch == math.MaxInt32:
				f.session, f.epoch = h.session, 1
			default:
				f.epoch++
			}
		}
		return nil
	}, func(p *part) error {
		var place asked
		if resp.Version >= fetchTopicID {
			place = f.numbered[idKey{p.id, p.partition}]
		} else {
			place = f.named[nameKey{string(p.name), p.partition}]
		}
		if place.feed != nil { // else nobody asked
			f.part(place, p, resp)
		}
		return nil
	})
	if errors.Is(err, errSession) && f.epoch > 0 {
		f.restart()
		return nil
	}
	if err != nil {
		return fmt.Errorf("take Fetch response of %s: %w", conn, err)
	}
	return nil
}

// part gives one partition's batches to the lanes of a feed and moves it behind them.
func (f *fetcher) part(place asked, p *part, resp cluster.Response) {
	x := place.feed
	batches, tail, err := batch.Scan(f.batches[:0], resp.Buf, p.records)
	if err != nil {
		// What came before the damage is sound; the next fetch begins at it and shows it again, alone.
		f.log.Error("damaged batch", "topic", x.part.topic, "partition", x.part.number, "err", err)
		if len(batches) == 0 {
			p.code = 2 // CORRUPT_MESSAGE
		}
	}
	f.batches = batches
	d := lane.Delivery{Code: p.code, Batches: batches, Aborted: p.aborted,
		HighWatermark: p.hw, LastStable: p.lso, LogStart: p.logStart}
	if p.diverging != nil {
		at := *p.diverging
		d.Diverging = &at
	}
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	deliver := x.fetcher == f && place == asked{x, x.gen, x.offset} && !x.stuck
	switch {
	case !deliver:
	case (p.code != 0 || d.Diverging != nil) && x.replica == f.broker:
		// A follower may lag, or not know yet what its leader does: the leader is asked.
		deliver = false
		s.refuseLocked(x)
	case p.code != 0:
		deliver = f.troubleLocked(x, p.code)
	case d.Diverging != nil:
		x.stickLocked() // the lane decides where to go on
	case len(batches) > 0:
		if n := x.meetLocked(batches); n < len(batches) {
			for _, b := range batches[n:] {
				b.Release()
			}
			batches = batches[:n]
			d.Batches = batches
		}
		if n := s.affordable(batches); n < len(batches) {
			if n == 0 {
				d.Needs = Pinned(int64(batches[0].Size()))
				x.stickLocked()
			}
			for _, b := range batches[n:] {
				b.Release()
			}
			batches = batches[:n]
			d.Batches = batches
			if n == 0 {
				break
			}
		}
		last := batches[len(batches)-1]
		x.density = bytesOf(batches) / max(last.NextOffset()-batches[0].BaseOffset(), 1)
		x.offset, x.epoch = last.NextOffset(), last.LeaderEpoch()
		if x.maxBytes > int32(s.opts.PartitionBytes) {
			x.maxBytes = int32(s.opts.PartitionBytes)
			s.claimed.Store(0) // it came, or a bit had flipped in its length
		}
		x.misses = 0
		x.lastData = time.Now()
		for _, b := range batches {
			if n := int64(b.Size()); n > s.largest.Load() {
				s.largest.Store(min(n, maxBatch))
			}
		}
		end := p.hw
		if s.opts.ReadCommitted {
			end = p.lso
		}
		x.changedLocked()
		if f.quiet && x.offset < end {
			f.removeLocked(x)
			s.placeLocked(x)
		}
	case tail > 0 && len(p.records) >= 12:
		x.misses = 0
		x.lastData = time.Now()
		n := int64(binary.BigEndian.Uint32(p.records[8:])) + 12
		if n > maxBatch {
			f.log.Error("batch of an impossible size", "topic", x.part.topic, "partition", x.part.number, "src_offset", x.offset, "bytes", n)
			d.Code = 2 // CORRUPT_MESSAGE
			x.stickLocked()
			break
		}
		if need := Pinned(n); need > s.credit.Limit() {
			d.Needs = need
			x.stickLocked()
			break
		}
		// The batch ahead is larger than what was asked for: ask for all of it.
		x.maxBytes = max(x.maxBytes, int32(n))
		s.claimed.Store(max(s.claimed.Load(), n))
		x.changedLocked()
		if f.quiet {
			f.removeLocked(x)
			s.placeLocked(x)
		}
	case p.preferred >= 0 && p.preferred != f.broker:
		x.misses = 0
		s.followLocked(x, p.preferred)
	default:
		x.misses = 0
		if x.offset < p.hw && !s.opts.ReadCommitted || x.offset < p.lso {
			x.lastData = time.Now() // others took all the room, or a quota did
		}
	}
	if deliver {
		x.read = true
		x.deliverLocked(d)
		x.joinLocked()
		x.callLocked()
	} else {
		for _, b := range batches {
			b.Release()
		}
	}
	clear(f.batches)
}

// troubleLocked deals with what a new leader or fresh metadata cure, and says whether the lane has to hear of the rest.
func (f *fetcher) troubleLocked(x *feed, code int16) (deliver bool) {
	s := f.source
	switch code {
	case 3, 5, 6, 9, 56, 74, 75, 78, 100, -1: // no leader here, a stale epoch, a topic that this broker does not know yet
		f.removeLocked(x)
		if x.misses > 0 && time.Since(x.troubled) >= goneAfter {
			if code == 3 || code == 100 {
				s.tellLocked(x, code)
				return false
			}
			if x.misses%16 == 0 {
				f.log.Warn("a partition cannot be fetched", "topic", x.part.topic, "partition", x.part.number, "err", kerr.ErrorForCode(code), "tries", x.misses)
			}
		}
		s.missLocked(x)
		s.stale()
		return false
	}
	// OFFSET_OUT_OF_RANGE and the rest: the lane decides. Until it seeks, the place is not asked for again.
	x.stickLocked()
	return true
}

// affordable counts the batches in front of the first one that takes more memory than there is. A broker sends the first batch of a
// fetch whatever its size; that it was read once does not mean that it may be held.
func (s *Source) affordable(batches []batch.Batch) int {
	for i, b := range batches {
		if Pinned(int64(b.Size())) > s.credit.Limit() {
			return i
		}
	}
	return len(batches)
}

func bytesOf(batches []batch.Batch) (n int64) {
	for _, b := range batches {
		n += int64(b.Size())
	}
	return n
}
