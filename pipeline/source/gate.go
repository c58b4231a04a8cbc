package source

import "time"

// Links that share a source begin at the same places, but some tenths of a second apart: they ask different targets for their
// states. The first one waits a little for the others, or each would read the backlog for itself.

const (
	gateMost   = 3 * time.Second // how long all links are waited for, from the first cursor that asks
	cursorMost = time.Second     // how long a cursor that is open and never asked is waited for
)

// gate counts the links whose first cursors are not open yet. Source.mu guards it.
type gate struct {
	links int
	since time.Time // the first feed waited
}

// Started tells that a link has opened its first cursors. Each link that shares the source says it once.
func (s *Source) Started() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gate.links--
	s.admitLocked(nil)
}

// closed says whether feeds have to wait for other links.
func (g *gate) closed(now time.Time) bool {
	if g.links <= 0 {
		return false
	}
	if g.since.IsZero() {
		g.since = now
	}
	return now.Sub(g.since) < gateMost
}

// earlyLocked says whether the feed had better wait for others that are about to begin at its place.
func (f *feed) earlyLocked(now time.Time) bool {
	if f.read {
		return false
	}
	if f.part.source.gate.closed(now) {
		return true
	}
	for _, x := range f.part.feeds {
		for _, c := range x.members {
			if !c.asked && now.Sub(c.opened) < cursorMost {
				return true
			}
		}
	}
	return false
}

// admitLocked places feeds that have waited enough: those of one partition, nil for all.
func (s *Source) admitLocked(p *partition) {
	if p == nil {
		if s.gate.closed(time.Now()) {
			return
		}
		for f := range s.waiting {
			s.placeLocked(f)
		}
		return
	}
	for _, f := range p.feeds {
		if _, waits := s.waiting[f]; waits {
			s.placeLocked(f)
		}
	}
}
