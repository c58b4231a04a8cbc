package source

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
	"kferry/tuning"
)

// fetcher is one connection to one broker with one fetch session.
type fetcher struct {
	source *Source
	broker int32
	quiet  bool
	log    *slog.Logger
	wake   chan struct{}

	// guarded by source.mu
	asking  int // cursors that ask
	cursors map[*Cursor]struct{}
	dirty   []*Cursor
	left    []*Cursor // in the session, but not here any more

	// of run's goroutine
	sizer     tuning.FetchSizer
	session   int32
	epoch     int32
	named     map[nameKey]asked // what the session holds, below version 13
	numbered  map[idKey]asked   // the same, from version 13
	request   kmsg.FetchRequest
	body      []byte
	walker    walker
	batches   []batch.Batch
	lastSweep time.Time
}

// asked is a place as the broker was last told. Only if it still is the cursor's, here, an answer is delivered: a cursor may have
// left meanwhile, been moved, or have come back by way of another connection that read on.
type asked struct {
	cursor *Cursor
	gen    uint32
	offset int64
}

type nameKey struct {
	topic     string
	partition int32
}

type idKey struct {
	id        [16]byte
	partition int32
}

func newFetcher(s *Source, broker int32, quiet bool) *fetcher {
	return &fetcher{source: s, broker: broker, quiet: quiet,
		sizer: tuning.FetchSizer{Min: min(s.opts.PartitionBytes, s.opts.FetchBytes), Max: s.opts.FetchBytes}, log: s.log.With("broker", broker, "quiet", quiet),
		wake: make(chan struct{}, 1), cursors: make(map[*Cursor]struct{})}
}

func (f *fetcher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) addLocked(c *Cursor) {
	c.fetcher = f
	c.dirty = false
	c.lastData = time.Now()
	f.cursors[c] = struct{}{}
	if c.wantsLocked() {
		f.asking++
	}
	c.changedLocked()
}

func (f *fetcher) removeLocked(c *Cursor) {
	delete(f.cursors, c)
	c.fetcher = nil
	if c.wantsLocked() {
		f.asking--
	}
	f.left = append(f.left, c)
}

// run connects while cursors ask, until ctx ends.
func (f *fetcher) run(ctx context.Context) {
	attempt := 0
	for f.wait(ctx) {
		served := false
		conn, err := f.source.cluster.DialWith(ctx, f.broker, cluster.ConnOptions{
			Pool: f.source.pool, MaxResponseBytes: maxBatch + f.source.opts.FetchBytes, RequestTimeout: f.source.opts.QuietWait + answerTime})
		if err == nil {
			served, err = f.serve(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		if cluster.Fatal(err) {
			f.source.give(err)
			return
		}
		f.source.stale()
		if !errors.Is(err, cluster.ErrClosed) {
			f.source.leave(f.broker)
			f.log.Warn("connection to the source broke", "err", err)
		}
		if served {
			attempt = 0
		}
		pause := time.NewTimer(f.source.opts.Backoff.Next(rand.Float64, attempt))
		attempt++
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// wait blocks until a cursor asks. It returns false when ctx ends.
func (f *fetcher) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		f.source.mu.Lock()
		n := f.asking
		f.source.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
		}
	}
	return false
}

// serve fetches over conn, one request at a time, until it breaks. It says whether there was a good answer.
func (f *fetcher) serve(ctx context.Context, conn *cluster.Conn) (served bool, err error) {
	defer conn.Close()
	defer conn.Bind(ctx)()
	version, ok := conn.Version(keyFetch)
	if !ok {
		return false, fmt.Errorf("fetch from %s: %w", conn, cluster.ErrUnsupported)
	}
	f.restart()
	last := time.Now()
	for f.wait(ctx) {
		if e := conn.Expires(); !e.IsZero() && time.Now().After(e) || time.Since(last) > idleClose {
			return served, fmt.Errorf("replace the connection to %s before the broker ends it: %w", conn, cluster.ErrClosed)
		}
		want := int64(min(batch.CapFor(f.sizer.Bytes()), f.source.opts.FetchBytes))
		if f.quiet {
			want = min(want, int64(f.source.opts.PartitionBytes))
		}
		reserved, err := f.source.credit.Reserve(ctx, pinned(want, f.source.largest.Load()))
		if err != nil {
			return served, context.Cause(ctx)
		}
		if !f.build(version, int32(want-want/frames)) {
			f.source.credit.Return(reserved)
			continue
		}
		if _, err := conn.Write(keyFetch, version, net.Buffers{f.body}); err != nil {
			f.source.credit.Return(reserved)
			return served, err
		}
		resp, err := conn.Read()
		if err != nil {
			f.source.credit.Return(reserved)
			return served, err
		}
		last = time.Now()
		f.sizer.Observe(resp.FirstByte.Sub(resp.Sent), resp.Done.Sub(resp.FirstByte), len(resp.Body))
		f.own(resp.Buf, reserved)
		f.source.fetches.Add(1)
		f.source.bytes.Add(int64(len(resp.Body)))
		err = f.take(conn, resp)
		resp.Buf.Release()
		if err != nil {
			return served, err
		}
		served = true
		f.sweep(last)
	}
	return served, context.Cause(ctx)
}

// answerTime is how long a broker may be silent, beyond what a fetch lets it wait.
const answerTime = 30 * time.Second

// frames is the part of a response that is left for what surrounds the batches, 1/32: a full one would else just miss its class of
// buffer, and pin twice the memory.
const frames = 32

// pinned is the memory that a response may take. A broker exceeds the limit of a fetch only for its first batch (minOneMessage,
// ReplicaManager.scala readFromLog).
func pinned(want, largest int64) int64 {
	return int64(batch.CapFor(int(min(max(want, largest+largest/frames), batch.MaxBuf))))
}

// idleClose is less than the brokers' connections.max.idle.ms (10 minutes).
const idleClose = 4 * time.Minute

// own gives the reservation to the buffer: what it does not need goes back now, the rest with its last view.
func (f *fetcher) own(buf *batch.Buf, reserved int64) {
	credit := f.source.credit
	need := int64(buf.Cap())
	reserved += credit.More(need - reserved)
	need = min(need, reserved)
	credit.Return(reserved - need)
	buf.SetRelease(func(int) { credit.Return(need) })
}

// restart forgets the session: the next request is a full one.
func (f *fetcher) restart() {
	f.session, f.epoch = 0, 0
	f.named, f.numbered = make(map[nameKey]asked), make(map[idKey]asked)
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.left, f.dirty = nil, nil
	for c := range f.cursors {
		c.dirty = true
		f.dirty = append(f.dirty, c)
	}
}

// build lays out the next request: in a session only what changed, else all. It returns false when nothing asks.
func (f *fetcher) build(version int16, maxBytes int32) bool {
	s := f.source
	r := &f.request
	topics := r.Topics[:0]
	r.Default()
	r.Version = version
	r.ReplicaID = -1
	r.MinBytes = 1
	r.MaxBytes = maxBytes
	r.MaxWaitMillis = int32(s.opts.BacklogWait.Milliseconds())
	if f.quiet {
		r.MaxWaitMillis = int32(s.opts.QuietWait.Milliseconds())
	}
	if s.opts.ReadCommitted {
		r.IsolationLevel = 1
	}
	r.SessionID, r.SessionEpoch = f.session, f.epoch
	if version < fetchSession {
		r.SessionID, r.SessionEpoch = 0, -1
	}
	full := f.epoch <= 0 || version < fetchSession

	s.mu.Lock()
	defer s.mu.Unlock()
	if f.asking == 0 {
		return false
	}
	r.Rack = s.rackLocked()
	r.ForgottenTopics = r.ForgottenTopics[:0]
	if full {
		for c := range f.cursors {
			if c.wantsLocked() {
				topics = f.add(version, topics, c)
			}
			c.dirty = false
		}
	} else {
		for _, c := range f.dirty {
			if c.fetcher != f || !c.dirty {
				continue
			}
			c.dirty = false
			switch {
			case c.wantsLocked():
				topics = f.add(version, topics, c)
			case f.holds(version, c):
				f.forget(version, c, full)
			}
		}
	}
	clear(f.dirty)
	f.dirty = f.dirty[:0]
	// After the additions: a partition that left and came back, by this cursor or another one, must not be forgotten.
	for _, c := range f.left {
		if f.holds(version, c) && c.fetcher != f {
			f.forget(version, c, full)
		}
	}
	clear(f.left)
	f.left = f.left[:0]
	r.Topics = topics
	f.body = r.AppendTo(f.body[:0])
	return true
}

func (f *fetcher) holds(version int16, c *Cursor) bool {
	if version >= fetchTopicID {
		return f.numbered[idKey{c.id, c.partition}].cursor == c
	}
	return f.named[nameKey{c.topic, c.partition}].cursor == c
}

func (f *fetcher) add(version int16, topics []kmsg.FetchRequestTopic, c *Cursor) []kmsg.FetchRequestTopic {
	place := asked{c, c.gen, c.offset}
	if version >= fetchTopicID {
		f.numbered[idKey{c.id, c.partition}] = place
	} else {
		f.named[nameKey{c.topic, c.partition}] = place
	}
	p := kmsg.FetchRequestTopicPartition{
		Partition: c.partition, CurrentLeaderEpoch: c.leader, FetchOffset: c.offset,
		LastFetchedEpoch: c.epoch, LogStartOffset: -1, PartitionMaxBytes: max(c.maxBytes, f.request.MaxBytes/int32(max(f.asking, 1))),
		HighWatermark: math.MaxInt64, // KIP-1166: not for us
	}
	// Cursors of a topic mostly follow each other; a topic that stands twice is fine too.
	if n := len(topics); n > 0 && topics[n-1].Topic == c.topic && topics[n-1].TopicID == c.id {
		topics[n-1].Partitions = append(topics[n-1].Partitions, p)
		return topics
	}
	if n := len(topics); n < cap(topics) {
		topics = topics[:n+1]
		topics[n].Topic, topics[n].TopicID = c.topic, c.id
		topics[n].Partitions = append(topics[n].Partitions[:0], p)
		return topics
	}
	return append(topics, kmsg.FetchRequestTopic{Topic: c.topic, TopicID: c.id, Partitions: []kmsg.FetchRequestTopicPartition{p}})
}

func (f *fetcher) forget(version int16, c *Cursor, full bool) {
	if version >= fetchTopicID {
		delete(f.numbered, idKey{c.id, c.partition})
	} else {
		delete(f.named, nameKey{c.topic, c.partition})
	}
	if !full {
		f.request.ForgottenTopics = append(f.request.ForgottenTopics, kmsg.FetchRequestForgottenTopic{
			Topic: c.topic, TopicID: c.id, Partitions: []int32{c.partition}})
	}
}

var errSession = errors.New("the broker does not know the fetch session")

// take hands a response's parts to the lanes.
func (f *fetcher) take(conn *cluster.Conn, resp cluster.Response) error {
	err := f.walker.walk(resp.Body, resp.Version, func(h head) error {
		if h.throttle > 0 {
			conn.Throttled(h.throttle)
		}
		switch h.code {
		case 0:
		case 70, 71, 106: // FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
			return errSession
		default:
			return fmt.Errorf("fetch from %s: %w", conn, kerr.ErrorForCode(h.code))
		}
		if resp.Version >= fetchSession {
			switch {
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
		if place.cursor != nil { // else nobody asked
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

// part gives one partition's batches to its lane and moves the cursor behind them.
func (f *fetcher) part(place asked, p *part, resp cluster.Response) {
	c := place.cursor
	batches, tail, err := batch.Scan(f.batches[:0], resp.Buf, p.records)
	if err != nil {
		// What came before the damage is sound; the next fetch begins at it and shows it again, alone.
		f.log.Error("damaged batch", "topic", c.topic, "partition", c.partition, "err", err)
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
	deliver := c.fetcher == f && place == asked{c, c.gen, c.offset} && !c.closed && !c.stuck
	d.Gen = c.gen
	switch {
	case !deliver:
	case (p.code != 0 || d.Diverging != nil) && c.replica == f.broker:
		// A follower may lag, or not know yet what its leader does: the leader is asked.
		deliver = false
		s.refuseLocked(c)
	case p.code != 0:
		deliver = f.troubleLocked(c, p.code)
	case d.Diverging != nil:
		c.setLocked(c.asking, true) // the lane decides where to go on
	case len(batches) > 0:
		last := batches[len(batches)-1]
		c.offset, c.epoch = last.NextOffset(), last.LeaderEpoch()
		c.maxBytes = int32(s.opts.PartitionBytes)
		c.misses = 0
		c.lastData = time.Now()
		for _, b := range batches {
			if n := int64(b.Size()); n > s.largest.Load() {
				s.largest.Store(min(n, maxBatch))
			}
		}
		end := p.hw
		if s.opts.ReadCommitted {
			end = p.lso
		}
		c.changedLocked()
		if f.quiet && c.offset < end {
			f.removeLocked(c)
			s.placeLocked(c)
		}
	case tail > 0 && len(p.records) >= 12:
		c.misses = 0
		c.lastData = time.Now()
		n := int64(binary.BigEndian.Uint32(p.records[8:])) + 12
		if n > maxBatch {
			f.log.Error("batch of an impossible size", "topic", c.topic, "partition", c.partition, "src_offset", c.offset, "bytes", n)
			d.Code = 2 // CORRUPT_MESSAGE
			c.setLocked(c.asking, true)
			break
		}
		// The batch ahead is larger than what was asked for: ask for all of it.
		c.maxBytes = max(c.maxBytes, int32(n))
		s.largest.Store(max(s.largest.Load(), n))
		c.changedLocked()
		if f.quiet {
			f.removeLocked(c)
			s.placeLocked(c)
		}
	case p.preferred >= 0 && p.preferred != f.broker:
		c.misses = 0
		s.followLocked(c, p.preferred)
	default:
		c.misses = 0
		if c.offset < p.hw && !s.opts.ReadCommitted || c.offset < p.lso {
			c.lastData = time.Now() // others took all the room, or a quota did
		}
	}
	if deliver {
		c.to(d)
	} else {
		for _, b := range batches {
			b.Release()
		}
	}
	clear(f.batches)
}

// troubleLocked deals with what a new leader or fresh metadata cure, and says whether the lane has to hear of the rest.
func (f *fetcher) troubleLocked(c *Cursor, code int16) (deliver bool) {
	s := f.source
	switch code {
	case 3, 5, 6, 9, 56, 74, 75, 78, 100, -1: // no leader here, a stale epoch, a topic that this broker does not know yet
		f.removeLocked(c)
		if c.misses > 0 && time.Since(c.troubled) >= goneAfter {
			if code == 3 || code == 100 {
				s.tellLocked(c, code)
				return false
			}
			if c.misses%16 == 0 {
				f.log.Warn("a partition cannot be fetched", "topic", c.topic, "partition", c.partition, "err", kerr.ErrorForCode(code), "tries", c.misses)
			}
		}
		s.missLocked(c)
		s.stale()
		return false
	}
	// OFFSET_OUT_OF_RANGE and the rest: the lane decides. Until it seeks, the place is not asked for again.
	c.setLocked(c.asking, true)
	return true
}

// sweep moves partitions without records to the quiet connection.
func (f *fetcher) sweep(now time.Time) {
	after := f.source.opts.QuietAfter
	if f.quiet || now.Sub(f.lastSweep) < after/4 {
		return
	}
	f.lastSweep = now
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.readers[f.broker]
	for c := range f.cursors {
		if c.wantsLocked() && now.Sub(c.lastData) >= after {
			f.removeLocked(c)
			r.quiet.addLocked(c)
		}
	}
}
