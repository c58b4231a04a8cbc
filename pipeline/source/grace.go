package source

import (
	"context"
	"time"
)

// Lanes of different targets read the same bytes only as long as they stay together, and a lane that is over its share must stop.
// The others wait for it while they have enough to do, which costs nobody anything: equals take turns at holding and go on
// together. Once one of them is hungry they wait out of a small budget, and when that is used up the one that holds leaves
// the feed.

const (
	graceMost  = 500 * time.Millisecond // waited in vain at once, at most
	graceShare = 20                     // of the time, 1/20 comes back
	graceCheck = 5 * time.Millisecond   // how often is looked while a feed is paused; less often where looking takes long
)

// grace is the budget of waiting in vain. The zero value has all of it.
type grace struct {
	used time.Duration
	vain bool // since at
	at   time.Time
}

// wait tells that from now on somebody waits in vain, or nobody does, and says whether there is some left.
func (p *grace) wait(now time.Time, vain bool) bool {
	if d := now.Sub(p.at); p.vain {
		p.used += d
	} else {
		p.used = max(0, p.used-d/graceShare)
	}
	p.at, p.vain = now, vain
	return p.used < graceMost
}

// pauseLocked begins to wait for a member that holds. What it holds it for shows when its lane has told how much it has.
func (f *feed) pauseLocked() {
	if s := f.part.source; len(f.members) > 1 {
		s.paused[f] = struct{}{}
		s.watchLocked()
	}
}

// judgeLocked says whether the feed goes on waiting for members that hold. If not, either nobody holds or nobody asks, or those
// that hold have been sent away. Who holds with little in hand is not full: something else stops it, and it is not waited for.
func (f *feed) judgeLocked(now time.Time) (waits bool) {
	full, stopped := 0, 0
	for _, c := range f.members {
		switch {
		case c.asking:
		case c.to.Hungry():
			stopped++
		default:
			full++
		}
	}
	asks := len(f.members) - full - stopped
	waits = full > 0 && asks > 0 && !f.stuck
	vain := waits && f.hungryLocked()
	if !f.grace.wait(now, vain) && vain {
		waits = false
		f.grace.wait(now, false)
	}
	if asks > 0 && !f.stuck && (stopped > 0 || full > 0 && !waits) {
		f.partLocked(func(c *Cursor) bool { return !c.asking && (!waits || c.to.Hungry()) })
	}
	return waits
}

// partLocked lets members go, each with a feed of its own.
func (f *feed) partLocked(goes func(*Cursor) bool) {
	was := f.wantsLocked()
	members := f.members
	f.members = nil
	for _, c := range members {
		if !goes(c) {
			f.members = append(f.members, c)
			continue
		}
		f.part.newFeedLocked(c, f.offset, f.epoch)
		c.feed.read = true
	}
	f.wantedLocked(was)
	f.joinLocked()
}

// hungryLocked says whether a member that asks would soon have nothing to do.
func (f *feed) hungryLocked() bool {
	for _, c := range f.members {
		if c.asking && c.to.Hungry() {
			return true
		}
	}
	return false
}

// watchLocked has judge be called soon.
func (s *Source) watchLocked() {
	if !s.watched {
		s.watched = true
		s.soon.Reset(max(graceCheck, 50*s.judging))
	}
}

// watch looks after feeds that wait for a member, or for other links to begin. Reading metadata, which may take long, is another's.
func (s *Source) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-s.soon.C:
			s.judge(now)
		}
	}
}

func (s *Source) judge(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched = false
	began := time.Now()
	for f := range s.paused {
		f.goOnLocked()
		if !f.judgeLocked(now) && !f.yields {
			delete(s.paused, f)
		}
	}
	s.admitLocked(nil)
	s.judging = time.Since(began)
	if len(s.paused)+len(s.waiting) > 0 {
		s.watchLocked()
	}
}
