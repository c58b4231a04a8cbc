package sink

import (
	"time"
)

// flight is one request under way.
type flight struct {
	items  []item
	bytes  int
	sent   time.Time
	unsent bool // not a byte of it left
}

// takeTogetherLocked puts flights in the air that leave with one write. A request holds one batch of a partition; where few
// partitions have much, several requests are as large as one may be. Where little is ready there is one: what follows it waits for
// company.
func (s *sender) takeTogetherLocked(together []*flight) []*flight {
	room, plenty := s.requestBytes(), s.readyBytes >= s.requestBytes()
	for f := s.takeLocked(room, true); f != nil; f = s.takeLocked(room, false) {
		together = append(together, f)
		if room -= f.bytes; !plenty || len(s.flying) >= s.sink.opts.MaxRequests {
			break
		}
	}
	return together
}

// takeLocked makes a flight of one entry of each ready stream, up to room bytes, and puts it in the air: an answer cannot come
// before. A single entry that is larger still goes, if it has to.
func (s *sender) takeLocked(room int, has bool) *flight {
	if len(s.ready) == 0 {
		return nil
	}
	var f *flight
	if n := len(s.free); n > 0 {
		f, s.free = s.free[n-1], s.free[:n-1]
	} else {
		f = new(flight)
	}
	s.flightNo++
	wait, full := s.spare[:0], false
	for _, st := range s.ready {
		if st.dead || st.emptyLocked() {
			st.queued = false
			continue
		}
		// Two batches of one partition in a request would cost us the first one; two lanes may write to one partition.
		if full || st.slot.flightNo == s.flightNo {
			wait = append(wait, st)
			continue
		}
		if (len(f.items) > 0 || !has) && f.bytes+st.queue[st.head].Size() > room {
			full = true
			wait = append(wait, st)
			continue
		}
		st.slot.flightNo = s.flightNo
		e := st.nextLocked()
		f.items = append(f.items, item{stream: st, entry: e})
		f.bytes += e.Size()
	}
	// Those that had to wait go first next time; those that have more follow in turn.
	for _, it := range f.items {
		if it.stream.emptyLocked() {
			it.stream.queued = false
		} else {
			wait = append(wait, it.stream)
		}
	}
	clear(s.ready)
	s.spare, s.ready = s.ready[:0], wait
	if len(f.items) == 0 {
		s.free = append(s.free, f)
		return nil
	}
	s.flying = append(s.flying, f)
	s.flyingByte += f.bytes
	return f
}

// find gives the item that an answer speaks of. Answers mostly come in the order of the request, from next on.
func (f *flight) find(a *answer, version int16, next *int) *item {
	for range f.items {
		if *next >= len(f.items) {
			*next = 0
		}
		it := &f.items[*next]
		*next++
		if it.stream.partition != a.partition || it.done {
			continue
		}
		if version >= produceTopicID && it.stream.topic.id == a.id || version < produceTopicID && it.stream.topic.name == string(a.name) {
			return it
		}
	}
	return nil
}
