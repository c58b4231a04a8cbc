package lane

import (
	"strings"
	"testing"
	"time"

	"kferry/batch"
)

// A lane has sent three batches, lost the answers, and given its buffers back after a second in doubt. What it reads again
// under the same numbers has to be what it sent.
func TestReadAgainHasToBeWhatWasSent(t *testing.T) {
	f := func(what string, written int64, again [][]byte, mismatch bool) {
		t.Helper()
		pool := batch.NewPool(0)
		now := time.Unix(1000, 0)
		opts := DefaultOptions(10, 1<<20)
		m := NewMachine(&opts, batch.Identity{ProducerID: 7}, Position{SrcEpoch: -1}, false, now)
		var reports []string
		sink := 0
		act := func() {
			for _, a := range m.Actions() {
				switch a.Kind {
				case Send:
					sink++
				case Report:
					reports = append(reports, a.Text)
				}
			}
		}
		deliver := func(wires ...[]byte) {
			m.Deliver(Delivery{Gen: m.gen, Batches: fetched(t, pool, wires...), HighWatermark: 100, LastStable: 100, LogStart: 0}, now)
			act()
		}
		m.Opened(now)
		deliver(sealed(plain(0, 2, 'a')))
		m.Complete(Completion{Entry: m.window.at(0), Base: 0}, now) // the first goes alone
		sink--
		deliver(sealed(plain(2, 2, 'b')), sealed(plain(4, 2, 'c')), sealed(plain(6, 2, 'd')))
		for ; sink > 0; sink-- {
			m.Complete(Completion{Entry: m.window.at(0), Outcome: Lost}, now)
		}
		m.LookFailed("no leader", now)
		now = now.Add(2 * time.Second)
		m.Tick(now)
		if m.held != 0 {
			t.Fatalf("%s: %d bytes held after two seconds in doubt", what, m.held)
		}
		m.LookedUp(LookResult{End: 2 + written, Known: true, Last: int32(1 + written)}, now)
		m.Opened(now)
		act()
		deliver(again...)
		for ; sink > 0 && m.id.Epoch == 0; sink-- { // what was in front of a difference arrives first
			m.Complete(Completion{Entry: m.window.at(0), Base: m.ack.Dst}, now)
			act()
		}
		if got := m.id.Epoch > 0; got != mismatch {
			t.Errorf("%s: a new epoch %t, want %t; %q", what, got, mismatch, reports)
		}
		if mismatch && !strings.Contains(strings.Join(reports, " "), "is not the one that was sent from there") {
			t.Errorf("%s: reported %q", what, reports)
		}
		m.Abort(now)
		act()
		for ; sink > 0; sink-- {
			m.Complete(Completion{Entry: m.window.at(0), Outcome: Lost}, now)
		}
		if n := pool.InUse(); n != 0 {
			t.Errorf("%s: %d bytes leaked", what, n)
		}
	}
	b, c, d := sealed(plain(2, 2, 'b')), sealed(plain(4, 2, 'c')), sealed(plain(6, 2, 'd'))
	f("the same, two on the target", 4, [][]byte{b, c, d}, false)
	f("the same, none on the target", 0, [][]byte{b, c, d}, false)
	f("compaction took the first of two on the target", 4, [][]byte{c, d}, true)
	f("compaction took one that is not on the target", 0, [][]byte{c, d}, true)
	f("other bytes in one on the target", 4, [][]byte{b, sealed(plain(4, 2, 'x')), d}, true)
	f("other bytes in one that is not on the target", 2, [][]byte{b, c, sealed(plain(6, 2, 'x'))}, true)
	f("other bounds", 4, [][]byte{sealed(plain(2, 4, 'b')), d}, true)
}
