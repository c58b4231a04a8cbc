package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/cluster"
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
	asking int // feeds that ask
	feeds  map[*feed]struct{}
	dirty  []*feed
	left   []*feed // in the session, but not here any more

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
	muted     time.Time // the broker's quota asked for silence until then
}

func newFetcher(s *Source, broker int32, quiet bool) *fetcher {
	return &fetcher{source: s, broker: broker, quiet: quiet,
		sizer: tuning.FetchSizer{Min: min(s.opts.PartitionBytes, s.opts.FetchBytes), Max: s.opts.FetchBytes}, log: s.log.With("broker", broker, "quiet", quiet),
		wake: make(chan struct{}, 1), feeds: make(map[*feed]struct{})}
}

func (f *fetcher) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) addLocked(x *feed) {
	x.fetcher = f
	x.dirty = false
	x.lastData = time.Now()
	f.feeds[x] = struct{}{}
	if x.wantsLocked() {
		f.asking++
	}
	x.changedLocked()
}

func (f *fetcher) removeLocked(x *feed) {
	delete(f.feeds, x)
	x.fetcher = nil
	if x.wantsLocked() {
		f.asking--
	}
	f.left = append(f.left, x)
}

// has says whether a feed of the partition is read here. A session holds a partition only once.
func (f *fetcher) has(p *partition) bool {
	for _, x := range p.feeds {
		if x.fetcher == f {
			return true
		}
	}
	return false
}

// run connects while feeds ask, until ctx ends.
func (f *fetcher) run(ctx context.Context) {
	cluster.StageSource.Enter()
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

// wait blocks until a feed asks. It returns false when ctx ends.
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
	for f.wait(ctx) && f.silent(ctx) {
		if e := conn.Expires(); !e.IsZero() && time.Now().After(e) || time.Since(last) > idleClose {
			return served, fmt.Errorf("replace the connection to %s before the broker ends it: %w", conn, cluster.ErrClosed)
		}
		want := int64(min(batch.CapFor(f.sizer.Bytes()), f.source.opts.FetchBytes))
		if f.quiet {
			want = min(want, int64(f.source.opts.PartitionBytes))
		}
		reserved, err := f.source.credit.Reserve(ctx, pinned(want, max(f.source.largest.Load(), f.source.claimed.Load())))
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
		if cap(f.body) > largeRequest { // a full request of thousands of partitions, which comes once in a session
			f.body, f.request = nil, kmsg.FetchRequest{}
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

// largeRequest is what a request may keep of memory for the next one, in bytes.
const largeRequest = 32 << 10

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

// Pinned is the memory that a batch of size bytes takes.
func Pinned(size int64) int64 { return pinned(0, size) }

// idleClose is less than the brokers' connections.max.idle.ms (10 minutes).
const idleClose = 4 * time.Minute

// own gives the reservation to the buffer: what it does not need goes back now, the rest with its last view.
func (f *fetcher) own(buf *batch.Buf, reserved int64) {
	credit := f.source.credit
	need := int64(buf.Cap())
	reserved += credit.More(need - reserved)
	need = min(need, reserved)
	credit.Return(reserved - need)
	if need == int64(buf.Cap()) {
		buf.SetRelease(credit.back) // without an allocation
		return
	}
	buf.SetRelease(func(int) { credit.Return(need) })
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
	for x := range f.feeds {
		if x.wantsLocked() && now.Sub(x.lastData) >= after {
			f.removeLocked(x)
			s.pickLocked(&r.quiet, x.part, f.broker, true).addLocked(x)
		}
	}
}
