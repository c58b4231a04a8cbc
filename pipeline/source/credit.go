package source

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// Credit is the memory that all fetch responses of a process may pin together, in bytes. Who waits longest is served first.
type Credit struct {
	limit   int64
	free    *semaphore.Weighted
	used    atomic.Int64
	waiting atomic.Int64
	back    func(n int) // Return, made once
}

// NewCredit gives limit bytes of credit.
func NewCredit(limit int64) *Credit {
	c := &Credit{limit: limit, free: semaphore.NewWeighted(limit)}
	c.back = func(n int) { c.Return(int64(n)) }
	return c
}

// Reserve takes n bytes, or all there are if n is more, and blocks until they are free. It returns what it took.
func (c *Credit) Reserve(ctx context.Context, n int64) (int64, error) {
	n = min(n, c.limit)
	c.waiting.Add(1)
	defer c.waiting.Add(-1)
	if err := c.free.Acquire(ctx, n); err != nil {
		return 0, err
	}
	c.used.Add(n)
	return n, nil
}

// More takes up to n bytes on top of a reservation, without waiting, and returns what it took: a response was larger than
// could be foreseen.
func (c *Credit) More(n int64) int64 {
	if n <= 0 || !c.free.TryAcquire(n) {
		return 0
	}
	c.used.Add(n)
	return n
}

// Return gives n reserved bytes back.
func (c *Credit) Return(n int64) {
	if n > 0 {
		c.used.Add(-n)
		c.free.Release(n)
	}
}

// Limit, Used and Waiting (fetchers that wait for credit) are for gauges.
func (c *Credit) Limit() int64   { return c.limit }
func (c *Credit) Used() int64    { return c.used.Load() }
func (c *Credit) Waiting() int64 { return c.waiting.Load() }
