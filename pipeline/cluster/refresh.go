package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refreshInterval is the least time between two metadata requests.
const refreshInterval = 100 * time.Millisecond

// lagging is how long brokers are taken to lag behind what is known. After that what is known was damaged, or the cluster is another one.
const lagging = 30 * time.Second

// refresher lets the callers of Refresh share their requests.
type refresher struct {
	turn    chan struct{} // holds one token: who has it may ask
	started atomic.Uint64 // the number of the last request that was begun

	// Of the one who has the turn.
	done uint64 // the number of the last request that ended by itself, and
	err  error  // how
	last time.Time
	back time.Time // since when answers tell lower leader epochs than are known; zero while they do not
}

func newRefresher() *refresher {
	r := &refresher{turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// Topology returns the last snapshot; empty before the first Refresh.
func (c *Cluster) Topology() *Topology { return c.topology.Load() }

// Refresh asks for the metadata of all topics. It returns after a request that was begun after the call, so the caller sees what is
// newer than its reason to ask. Concurrent callers share one request, and requests are at least 100 ms apart. Where no broker can be
// reached the error says in clear words why; Fatal tells whether trying again may help.
func (c *Cluster) Refresh(ctx context.Context) error {
	r := c.refresh
	want := r.started.Load() + 1
	select {
	case <-r.turn:
	case <-ctx.Done():
		return fmt.Errorf("refresh metadata of %s: %w", c.cfg.Alias, context.Cause(ctx))
	}
	defer func() { r.turn <- struct{}{} }()
	if r.done >= want {
		return r.err // one that waited with us has asked
	}
	if err := sleep(ctx, time.Until(r.last.Add(refreshInterval))); err != nil {
		return fmt.Errorf("refresh metadata of %s: %w", c.cfg.Alias, err)
	}
	number := r.started.Add(1)
	r.last = time.Now()
	err := c.ask(ctx)
	if ctx.Err() == nil { // else it may be this caller's impatience only
		r.done, r.err = number, err
	}
	return err
}

func (c *Cluster) ask(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest() // no topics named: all of them
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return c.explainWith(ctx, err)
	}
	c.logins.judge(ctx, nil)
	was := c.topology.Load()
	now, err := c.refresh.base(was, resp, time.Now()).next(resp)
	if err != nil {
		return fmt.Errorf("read metadata of %s: %w", c.cfg.Alias, err)
	}
	if now != was {
		c.topology.Store(now)
		close(was.changed)
	}
	return nil
}

// base is the snapshot that an answer is put on: the last one, or one without topics where answers go back behind it for too long.
func (r *refresher) base(was *Topology, m *kmsg.MetadataResponse, now time.Time) *Topology {
	switch {
	case !was.ahead(m):
		r.back = time.Time{}
	case r.back.IsZero():
		r.back = now
	case now.Sub(r.back) > lagging:
		r.back = time.Time{}
		forgetful := newTopology()
		forgetful.Version, forgetful.ClusterID = was.Version, was.ClusterID
		return forgetful
	}
	return was
}

// explainWith finds out what is wrong where franz-go only knows that the connection ended, or not which connection it was.
func (c *Cluster) explainWith(ctx context.Context, err error) error {
	err = c.logins.judge(ctx, err)
	// franz-go does not say either whose login it was that was refused.
	if (!Fatal(err) || errors.Is(err, ErrCredentials)) && ctx.Err() == nil {
		if why := c.Reach(ctx); why != nil {
			err = why
		}
	}
	return fmt.Errorf("refresh metadata of %s: %w", c.cfg.Alias, Explain(err))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
