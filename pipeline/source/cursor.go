package source

import (
	"context"
	"errors"
	"time"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// Reader is who a cursor delivers to, in effect a lane. Its methods are called under the source's lock, so that what one connection
// delivers cannot overtake what another one does: they must not block, nor call the cursor.
type Reader interface {
	Deliver(lane.Delivery)
	Hungry() bool // it would soon have nothing to do without more
}

// Cursor is a lane's place in one partition of the source. It implements lane.Cursor.
type Cursor struct {
	part *partition
	to   Reader

	// guarded by source.mu
	feed   *feed // that it is a member of; nil once closed
	gen    uint32
	asking bool
	moved  bool      // nothing was delivered since the last MoveTo
	asked  bool      // it asked once
	opened time.Time // see gate.go
}

// Open makes a cursor for a partition. It delivers nothing before MoveTo and Ask.
func (s *Source) Open(topic string, id [16]byte, number int32, to Reader) *Cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := partitionKey{topic, id, number}
	p := s.partitions[key]
	if p == nil {
		p = &partition{source: s, partitionKey: key}
		s.partitions[key] = p
	}
	c := &Cursor{part: p, to: to, opened: time.Now()}
	p.newFeedLocked(c, -1, -1)
	return c
}

// MoveTo moves the place. What was asked for before is not delivered any more.
func (c *Cursor) MoveTo(src int64, epoch int32, gen uint32) {
	c.part.source.mu.Lock()
	defer c.part.source.mu.Unlock()
	if c.feed == nil {
		return
	}
	c.gen, c.moved = gen, true
	if f := c.feed; len(f.members) > 1 {
		f.removeMemberLocked(c)
		c.part.newFeedLocked(c, src, epoch)
		c.feed.read = f.read
		c.feed.wantedLocked(false)
	} else {
		was := f.wantsLocked()
		f.offset, f.epoch, f.stuck = src, epoch, false
		f.gen++
		f.wantedLocked(was)
		f.changedLocked()
		f.hurryLocked()
	}
	c.feed.joinLocked()
}

// Ask starts fetching. Who asks again is taken to have a backlog.
func (c *Cursor) Ask() {
	c.part.source.mu.Lock()
	defer c.part.source.mu.Unlock()
	if c.feed == nil {
		return
	}
	first := !c.asked
	c.asked = true
	was := c.feed.wantsLocked()
	c.asking = true
	c.feed.wantedLocked(was)
	c.feed.joinLocked()
	c.feed.callLocked()
	if first {
		c.part.source.admitLocked(c.part) // others may have waited for this one
	}
}

// Hold stops fetching; what is under way is still delivered.
func (c *Cursor) Hold() {
	c.part.source.mu.Lock()
	defer c.part.source.mu.Unlock()
	if c.feed == nil {
		return
	}
	was := c.feed.wantsLocked()
	c.asking = false
	c.feed.wantedLocked(was)
	c.feed.pauseLocked()
}

// Close takes the cursor out: nothing is delivered any more.
func (c *Cursor) Close() {
	p := c.part
	p.source.mu.Lock()
	defer p.source.mu.Unlock()
	if c.feed == nil {
		return
	}
	if f := c.feed; len(f.members) > 1 {
		f.removeMemberLocked(c)
	} else {
		f.endLocked()
	}
	c.feed = nil
	if len(p.feeds) == 0 {
		delete(p.source.partitions, p.partitionKey)
	}
}

// Bounds asks the partition's leader where the log begins and where it ends (high watermark).
func (c *Cursor) Bounds(ctx context.Context) (start, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at := cluster.Place{Topic: c.part.topic, Partition: c.part.number}
	of := c.part.source.cluster
	s := of.Offsets(ctx, []cluster.Place{at}, cluster.Earliest, false)[at]
	e := of.Offsets(ctx, []cluster.Place{at}, cluster.Latest, false)[at]
	return s.Offset, e.Offset, errors.Join(s.Err, e.Err)
}
