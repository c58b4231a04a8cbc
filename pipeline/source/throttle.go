package source

import (
	"context"
	"time"
)

// mostThrottle bounds what a broker may ask for; quota windows are far shorter.
const mostThrottle = 10 * time.Minute

// mute notes that the broker answered without records because a quota is used up, and reads nothing from this connection for d
// (KIP-219). Nobody knows then whether there are records, so no feed counts as quiet for it.
func (f *fetcher) mute(d time.Duration) {
	if d = min(d, mostThrottle); d <= 0 {
		return
	}
	s := f.source
	s.throttle.Add(d.Milliseconds())
	f.muted = time.Now().Add(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range f.feeds {
		x.lastData = f.muted
	}
}

// silent waits until the mute is over. A request that was written before would wait in the broker's socket: with its credit reserved, its
// time running, and its places getting old. It returns false when ctx ends.
func (f *fetcher) silent(ctx context.Context) bool {
	left := time.Until(f.muted)
	if left <= 0 {
		return true
	}
	over := time.NewTimer(left)
	defer over.Stop()
	select {
	case <-over.C:
		return true
	case <-ctx.Done():
		return false
	}
}
