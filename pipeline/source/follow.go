package source

import (
	"time"

	"kferry/pipeline/cluster"
)

// Where the cluster has a rack, a leader may name a follower that is nearer (KIP-392). It answers without records then, and the
// cursor goes there.

// followFor is how long a follower is read from before the leader is asked again who is nearest, as the Java consumer's
// metadata.max.age.ms.
const followFor = 5 * time.Minute

// aloneFor is how long no rack is sent after trouble with a follower: leaders answer themselves then, instead of naming it again.
const aloneFor = 10 * time.Second

// rackLocked is what to send with a fetch.
func (s *Source) rackLocked() string {
	if rack := s.cluster.Rack(); rack != "" && !time.Now().Before(s.alone) {
		return rack
	}
	return ""
}

// brokerLocked is who the cursor is to be read from, where p says who leads.
func (c *Cursor) brokerLocked(t *cluster.Topology, p cluster.Partition) int32 {
	if _, known := t.Brokers[c.replica]; known && c.replica >= 0 {
		return c.replica
	}
	return p.Leader
}

func (c *Cursor) unfollowLocked() {
	c.replica = -1
	delete(c.source.following, c)
}

// followLocked moves the cursor to a follower. One that the metadata do not have is not followed.
func (s *Source) followLocked(c *Cursor, replica int32) {
	if _, known := s.cluster.Topology().Brokers[replica]; !known {
		s.alone = time.Now().Add(aloneFor)
		s.stale()
		return
	}
	c.replica, c.follows = replica, time.Now().Add(followFor)
	s.following[c] = struct{}{}
	s.moveLocked(c)
}

// refuseLocked takes the cursor from a follower that cannot serve it back to the leader.
func (s *Source) refuseLocked(c *Cursor) {
	s.alone = time.Now().Add(aloneFor)
	c.unfollowLocked()
	s.moveLocked(c)
	s.stale()
}

func (s *Source) moveLocked(c *Cursor) {
	if c.fetcher != nil {
		c.fetcher.removeLocked(c)
	}
	s.placeLocked(c)
}

// leave takes all cursors that follow a broker, which cannot be reached, back to their leaders.
func (s *Source) leave(broker int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.following {
		if c.replica == broker {
			s.refuseLocked(c)
		}
	}
}

// askAgain takes cursors that have followed for long back to their leaders. A follower that no longer replicates shows no other sign.
func (s *Source) askAgain(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.looked) < time.Second {
		return
	}
	s.looked = now
	for c := range s.following {
		if now.After(c.follows) {
			c.unfollowLocked()
			s.moveLocked(c)
		}
	}
}
