package source

import (
	"context"
	"errors"
	"time"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// Cursor is a lane's place in one partition of the source. It implements lane.Cursor.
type Cursor struct {
	source    *Source
	topic     string
	id        [16]byte // of the topic, zero where the source gives none
	partition int32
	to        func(lane.Delivery)

	// guarded by source.mu
	offset   int64
	epoch    int32 // leader epoch of the batch before offset, -1 unknown
	gen      uint32
	asking   bool
	stuck    bool // the place was refused: nothing is fetched before the next MoveTo
	closed   bool
	replica  int32     // a follower to read from, -1 for the leader; see follow.go
	follows  time.Time // until then: the leader is asked again
	leader   int32     // the leader's epoch, sent along; -1 unknown
	maxBytes int32     // asked for at once; more than usual while a larger batch lies ahead
	misses   int       // tries in a row that found no leader, or an error that fresh metadata should cure
	troubled time.Time // of the first of them
	retryAt  time.Time // when to try again, should the metadata not change before
	fetcher  *fetcher

	// of the fetcher that holds it
	dirty    bool      // the session does not know the present place
	lastData time.Time // when there last was something to read
}

// MoveTo moves the place. What was asked for before is not delivered any more.
func (c *Cursor) MoveTo(src int64, epoch int32, gen uint32) {
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.offset, c.epoch, c.gen = src, epoch, gen
	c.setLocked(c.asking, false)
	c.changedLocked()
	c.hurryLocked()
}

// Ask starts fetching. Who asks again is taken to have a backlog.
func (c *Cursor) Ask() {
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.setLocked(true, c.stuck)
}

// Hold stops fetching; what is under way is still delivered.
func (c *Cursor) Hold() {
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	c.setLocked(false, c.stuck)
}

// wantsLocked says whether the cursor is to be fetched.
func (c *Cursor) wantsLocked() bool { return c.asking && !c.stuck && !c.closed }

// setLocked changes what the cursor wants, and all that counts it.
func (c *Cursor) setLocked(asking, stuck bool) {
	was := c.wantsLocked()
	c.asking, c.stuck = asking, stuck
	now := c.wantsLocked()
	if was == now {
		return
	}
	switch f := c.fetcher; {
	case f == nil && now:
		c.source.placeLocked(c)
	case f == nil:
		delete(c.source.homeless, c)
	case now:
		f.asking++
		if c.recreated(c.source.cluster.Topology()) {
			c.source.tellLocked(c, 100) // UNKNOWN_TOPIC_ID
			return
		}
		c.lastData = time.Now()
		c.changedLocked()
		c.hurryLocked()
	default:
		f.asking--
		c.changedLocked()
	}
}

// hurryLocked takes the cursor from a quiet connection, whose request may be waiting at the broker, to one that answers soon.
func (c *Cursor) hurryLocked() {
	if f := c.fetcher; f != nil && f.quiet && c.wantsLocked() {
		f.removeLocked(c)
		c.source.placeLocked(c)
	}
}

// Close takes the cursor out: nothing is delivered any more.
func (c *Cursor) Close() {
	c.source.mu.Lock()
	defer c.source.mu.Unlock()
	if c.fetcher != nil {
		c.fetcher.removeLocked(c)
	}
	c.closed = true
	delete(c.source.cursors, c)
	delete(c.source.following, c)
	delete(c.source.homeless, c)
}

// Bounds asks the partition's leader where the log begins and where it ends (high watermark).
func (c *Cursor) Bounds(ctx context.Context) (start, end int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	at := cluster.Place{Topic: c.topic, Partition: c.partition}
	s := c.source.cluster.Offsets(ctx, []cluster.Place{at}, cluster.Earliest, false)[at]
	e := c.source.cluster.Offsets(ctx, []cluster.Place{at}, cluster.Latest, false)[at]
	return s.Offset, e.Offset, errors.Join(s.Err, e.Err)
}

// changedLocked tells the fetcher that the session has to learn something.
func (c *Cursor) changedLocked() {
	if f := c.fetcher; f != nil {
		if !c.dirty {
			c.dirty = true
			f.dirty = append(f.dirty, c)
		}
		f.signal()
	}
}
