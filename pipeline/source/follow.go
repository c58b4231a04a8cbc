package source

import (
	"time"

	"kferry/pipeline/cluster"
)

// Where the cluster has a rack, a leader may name a follower that is nearer (KIP-392). It answers without records then, and the
// feed goes there.

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

// brokerLocked is who the feed is to be read from, where p says who leads.
func (f *feed) brokerLocked(t *cluster.Topology, p cluster.Partition) int32 {
	if _, known := t.Brokers[f.replica]; known && f.replica >= 0 {
		return f.replica
	}
	return p.Leader
}

func (f *feed) unfollowLocked() {
	f.replica = -1
	delete(f.part.source.following, f)
}

// followLocked moves the feed to a follower. One that the metadata do not have is not followed.
func (s *Source) followLocked(f *feed, replica int32) {
	if _, known := s.cluster.Topology().Brokers[replica]; !known {
		s.alone = time.Now().Add(aloneFor)
		s.stale()
		return
	}
	f.replica, f.follows = replica, time.Now().Add(followFor)
	s.following[f] = struct{}{}
	s.moveLocked(f)
}

// refuseLocked takes the feed from a follower that cannot serve it back to the leader.
func (s *Source) refuseLocked(f *feed) {
	s.alone = time.Now().Add(aloneFor)
	f.unfollowLocked()
	s.moveLocked(f)
	s.stale()
}

func (s *Source) moveLocked(f *feed) {
	if f.fetcher != nil {
		f.fetcher.removeLocked(f)
	}
	s.placeLocked(f)
}

// leave takes all feeds that follow a broker, which cannot be reached, back to their leaders.
func (s *Source) leave(broker int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.following {
		if f.replica == broker {
			s.refuseLocked(f)
		}
	}
}

// askAgain takes feeds that have followed for long back to their leaders. A follower that no longer replicates shows no other sign.
func (s *Source) askAgain(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.looked) < time.Second {
		return
	}
	s.looked = now
	for f := range s.following {
		if now.After(f.follows) {
			f.unfollowLocked()
			s.moveLocked(f)
		}
	}
}
