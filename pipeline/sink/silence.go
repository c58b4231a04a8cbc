package sink

import "time"

// muteAfter is how long the oldest request may be without an answer before its connection takes nothing more. It stays open: a broker
// that waits for its replicas is silent too.
const muteAfter = 3 * time.Second

// silenceLocked says how long the connection may yet be silent, 0 for as long as it likes. When that is over, what streams have queued and
// not begun to send goes back to its lanes: other links could use the memory.
func (s *sender) silenceLocked(now time.Time) time.Duration {
	if len(s.flying) == 0 || s.mute || now.Before(s.pauseUntil) {
		return 0
	}
	since := s.flying[0].sent
	for _, t := range []time.Time{s.heard, s.pauseUntil} {
		if t.After(since) {
			since = t
		}
	}
	if left := s.patienceLocked() - now.Sub(since); left > 0 {
		return left
	}
	s.log.Warn("the target does not answer", "requests", len(s.flying), "bytes", s.flyingByte)
	s.muteLocked()
	return 0
}

// patienceLocked is muteAfter, or longer where answers take long: on a thin line as long as the bytes before them.
func (s *sender) patienceLocked() time.Duration { return max(muteAfter, 8*s.budget.Least()) }

// block tells that a dial or a write begins, or has ended: a peer that accepts and says nothing, or reads nothing, holds it until its
// deadline.
func (s *sender) block(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocked = on
	switch {
	case !on:
		s.slow.Stop()
	case s.slow == nil:
		s.slow = time.AfterFunc(s.patienceLocked(), s.blockedLong)
	default:
		s.slow.Reset(s.patienceLocked())
	}
}

func (s *sender) blockedLong() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch mute := time.Until(s.pauseUntil); {
	case !s.blocked:
	case mute > 0: // the peer has said that it reads nothing
		s.slow.Reset(mute + s.patienceLocked())
	default:
		s.muteLocked()
	}
}

func (s *sender) muteLocked() {
	s.mute = true
	for st := range s.streams {
		if st.flying == 0 {
			st.endLocked()
		}
	}
}
