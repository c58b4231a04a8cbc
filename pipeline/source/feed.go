package source

import (
	"slices"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// partitionKey names one log of the source.
type partitionKey struct {
	topic  string
	id     [16]byte // of the topic, zero where the source gives none
	number int32
}

// partition is all that reads one log. Source.mu guards it.
type partition struct {
	source *Source
	partitionKey
	feeds []*feed // at different places, or not all asking; each has a member
}

// feed is one partition as it is read at one place, for all cursors that stand there: the source serves the bytes once. It is
// fetched while all its members ask. A member that holds has the feed pause, or leaves it; see grace.go. Feeds that ask and
// come to the same place become one. Source.mu guards it.
type feed struct {
	part    *partition
	members []*Cursor
	grace   grace

	offset   int64
	epoch    int32  // leader epoch of the batch before offset, -1 unknown
	gen      uint32 // of the place: what was asked for under an older one is not delivered
	density  int64  // bytes of an offset, of the last batches
	yields   bool   // not fetched: one that is a little behind comes up; see yield.go
	stuck    bool   // the place was refused: nothing is fetched before a MoveTo
	read     bool   // something was delivered
	replica  int32  // a follower to read from, -1 for the leader; see follow.go
	leader   int32  // the leader's epoch, sent along; -1 unknown
	maxBytes int32  // asked for at once; more than usual while a larger batch lies ahead
	misses   int    // tries in a row that found no leader, or an error that fresh metadata should cure
	follows  time.Time
	troubled time.Time // of the first miss
	retryAt  time.Time // when to try again, should the metadata not change before
	fetcher  *fetcher

	// of the fetcher that holds it
	dirty    bool      // the session does not know the present place
	lastData time.Time // when there last was something to read
}

// newFeedLocked gives a cursor a feed of its own.
func (p *partition) newFeedLocked(c *Cursor, offset int64, epoch int32) {
	c.feed = &feed{part: p, members: []*Cursor{c}, offset: offset, epoch: epoch, replica: -1, leader: -1, maxBytes: int32(p.source.opts.PartitionBytes)}
	p.feeds = append(p.feeds, c.feed)
}

// wantsLocked says whether the feed is to be fetched.
func (f *feed) wantsLocked() bool { return !f.yields && f.asksLocked() }

// asksLocked says whether all members ask.
func (f *feed) asksLocked() bool {
	for _, c := range f.members {
		if !c.asking {
			return false
		}
	}
	return !f.stuck && len(f.members) > 0
}

// wantedLocked carries out a change of what the feed wants; was is what it wanted before.
func (f *feed) wantedLocked(was bool) {
	now := f.wantsLocked()
	if was == now {
		return
	}
	s := f.part.source
	switch x := f.fetcher; {
	case x == nil && now:
		s.placeLocked(f)
	case x == nil:
		delete(s.homeless, f)
		delete(s.waiting, f)
	case now:
		x.asking++
		if f.part.recreated(s.cluster.Topology()) {
			s.tellLocked(f, 100) // UNKNOWN_TOPIC_ID
			return
		}
		f.lastData = time.Now()
		f.changedLocked()
		f.hurryLocked()
	default:
		x.asking--
		f.changedLocked()
	}
}

// stickLocked has nothing be fetched before the next MoveTo.
func (f *feed) stickLocked() {
	was := f.wantsLocked()
	f.stuck = true
	f.wantedLocked(was)
}

// changedLocked tells the fetcher that the session has to learn something.
func (f *feed) changedLocked() {
	if x := f.fetcher; x != nil {
		if !f.dirty {
			f.dirty = true
			x.dirty = append(x.dirty, f)
		}
		x.signal()
	}
}

// hurryLocked takes the feed from a quiet connection, whose request may be waiting at the broker, to one that answers soon.
func (f *feed) hurryLocked() {
	if x := f.fetcher; x != nil && x.quiet && f.wantsLocked() {
		x.removeLocked(f)
		f.part.source.placeLocked(f)
	}
}

// removeMemberLocked lets a cursor go; the others go on.
func (f *feed) removeMemberLocked(c *Cursor) {
	was := f.wantsLocked()
	f.members = slices.DeleteFunc(f.members, func(x *Cursor) bool { return x == c })
	f.wantedLocked(was)
	f.joinLocked()
}

// endLocked takes the feed out of everything.
func (f *feed) endLocked() {
	s := f.part.source
	if f.fetcher != nil {
		f.fetcher.removeLocked(f)
	}
	delete(s.following, f)
	delete(s.homeless, f)
	delete(s.waiting, f)
	delete(s.paused, f)
	f.members = nil
	f.part.feeds = slices.DeleteFunc(f.part.feeds, func(x *feed) bool { return x == f })
}

// joinLocked makes one feed of this one and another that stands and asks at the same place. What the other one asked for is for
// all, unless a member has moved since: it waits for what is asked from now on.
func (f *feed) joinLocked() {
	if len(f.part.feeds) < 2 || !f.asksLocked() {
		return
	}
	i := slices.IndexFunc(f.part.feeds, func(x *feed) bool {
		return x != f && x.offset == f.offset && x.epoch == f.epoch && x.asksLocked()
	})
	if i < 0 {
		return
	}
	into, members := f.part.feeds[i], f.members
	f.endLocked()
	was := into.wantsLocked()
	into.yields = false
	into.members = append(into.members, members...)
	into.maxBytes = max(into.maxBytes, f.maxBytes)
	into.read = into.read || f.read
	into.grace.used = max(into.grace.used, f.grace.used)
	into.wantedLocked(was)
	for _, c := range members {
		c.feed = into
		if c.moved {
			into.gen++
			into.changedLocked()
			into.hurryLocked()
		}
	}
}

// meetLocked counts the batches up to the first place where another feed stands and asks: from there on it reads for both.
func (f *feed) meetLocked(batches []batch.Batch) int {
	if len(f.part.feeds) > 1 {
		for i, b := range batches {
			for _, x := range f.part.feeds {
				if x != f && x.offset == b.NextOffset() && x.epoch == b.LeaderEpoch() && x.asksLocked() {
					return i + 1
				}
			}
		}
	}
	return len(batches)
}

// deliverLocked gives d to all members. The references in it move to the last one, the others get their own.
func (f *feed) deliverLocked(d lane.Delivery) {
	for i, c := range f.members {
		if i < len(f.members)-1 {
			for _, b := range d.Batches {
				b.Retain()
			}
		}
		d.Gen = c.gen
		c.moved = false
		c.to.Deliver(d)
	}
}

// recreated says that the topic's name now belongs to another log.
func (p *partition) recreated(t *cluster.Topology) bool {
	known := t.Topics[p.topic]
	return known != nil && p.id != [16]byte{} && known.ID != [16]byte{} && known.ID != p.id
}
