package source

import (
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// near makes the leader of orders/0 name its follower to who sends a rack, as Kafka does (findPreferredReadReplica), and counts the
// fetches of it by broker. trouble, if not 0, is what the follower says.
type near struct {
	mu      sync.Mutex
	fetches map[int32]int
	trouble int16
	named   int32 // whom the leader names
}

func (n *near) count(broker int32) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fetches[broker]
}

func (n *near) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func nearby(t *testing.T) (r *rig, n *near, leader, follower int32) {
	r = startIn(t, "here", options())
	leader = r.fake.LeaderFor("orders", 0)
	follower = 1 - leader
	r.fake.SetFollowers("orders", 0, []int32{follower})
	n = &near{fetches: make(map[int32]int), named: follower}
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		p, ok := asksFor(req, 0)
		if !ok {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		node := r.fake.CurrentNode()
		n.fetches[node]++
		part := kmsg.NewFetchResponseTopicPartition()
		part.Partition, part.PreferredReadReplica = p.Partition, -1
		switch {
		case node == leader && req.Rack == "here":
			part.PreferredReadReplica = n.named
		case node == follower && n.trouble != 0:
			part.ErrorCode = n.trouble
		default:
			return nil
		}
		return r.answer(req, "orders", part)
	})
	return r, n, leader, follower
}

// The follower that the leader names is read from.
func TestFollow(t *testing.T) {
	r, n, leader, follower := nearby(t)
	end := r.write(t, "orders", 0, 10, 1000)
	x := r.open(t, "orders", 0)
	x.cursor.Ask()
	x.reach(t, end)
	if n := n.count(leader); n != 1 {
		t.Fatalf("the leader was asked %d times", n)
	}
	x.reach(t, r.write(t, "orders", 0, 10, 1000))
	// Both counts are taken before: a request names the partition only once after a move, and the second move may be quick.
	asked, followed := n.count(leader), n.count(follower)
	r.source.mu.Lock()
	x.cursor.feed.follows = time.Now().Add(-time.Second)
	r.source.mu.Unlock()
	eventually(t, "the leader is asked again", func() bool { return n.count(leader) > asked })
	eventually(t, "and names the follower again", func() bool { return n.count(follower) > followed })
	x.reach(t, r.write(t, "orders", 0, 10, 1000))
}

// Whatever a follower says that is no data, the leader serves; the lane does not hear of it.
func TestFollowerInTrouble(t *testing.T) {
	for _, code := range []int16{kerr.OffsetOutOfRange.Code, kerr.NotLeaderForPartition.Code, kerr.UnknownServerError.Code, kerr.UnknownLeaderEpoch.Code} {
		r, n, leader, follower := nearby(t)
		n.set(func() { n.trouble = code })
		end := r.write(t, "orders", 0, 10, 1000)
		x := r.open(t, "orders", 0)
		x.cursor.Ask()
		x.reach(t, end)
		if n.count(follower) == 0 || n.count(leader) < 2 || len(x.codes) > 0 {
			t.Fatalf("code %d: %d fetches from the follower, %d from the leader, the lane heard %v", code, n.count(follower), n.count(leader), x.codes)
		}
	}
}

// A follower that cannot be reached, and one that the metadata do not have.
func TestFollowerIsGone(t *testing.T) {
	t.Run("unreachable", func(t *testing.T) {
		r, n, leader, follower := nearby(t)
		end := r.write(t, "orders", 0, 10, 1000)
		x := r.open(t, "orders", 0)
		x.cursor.Ask()
		x.reach(t, end)
		r.fake.SetFollowers("orders", 0, nil)
		n.set(func() { n.trouble = -1 })
		before := n.count(leader)
		x.reach(t, r.write(t, "orders", 0, 10, 1000))
		if n.count(leader) == before || n.count(follower) == 0 {
			t.Fatalf("%d fetches from the leader before, %d after", before, n.count(leader))
		}
	})
	t.Run("unknown", func(t *testing.T) {
		r, n, leader, follower := nearby(t)
		n.set(func() { n.named = 77 })
		end := r.write(t, "orders", 0, 10, 1000)
		x := r.open(t, "orders", 0)
		x.cursor.Ask()
		x.reach(t, end)
		if n.count(leader) < 2 || n.count(follower) != 0 {
			t.Fatalf("%d fetches from the leader, %d from the other", n.count(leader), n.count(follower))
		}
	})
	t.Run("broken", func(t *testing.T) {
		r, n, leader, follower := nearby(t)
		end := r.write(t, "orders", 0, 10, 1000)
		x := r.open(t, "orders", 0)
		x.cursor.Ask()
		x.reach(t, end)
		before := n.count(leader)
		r.source.leave(follower)
		x.reach(t, r.write(t, "orders", 0, 10, 1000))
		if n.count(leader) == before {
			t.Fatal("the leader was not asked")
		}
	})
}
