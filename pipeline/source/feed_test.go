package source

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/lane"
)

// feeds counts the places at which the taps' partition is read.
func feeds(x *tap) int {
	x.cursor.part.source.mu.Lock()
	defer x.cursor.part.source.mu.Unlock()
	return len(x.cursor.part.feeds)
}

// places counts how often each place of orders/0 is asked for.
func (r *rig) places() func() map[int64]int {
	counts := make(map[int64]int)
	var mu sync.Mutex
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if p, ok := asksFor(req, 0); ok {
			mu.Lock()
			counts[p.FetchOffset]++
			mu.Unlock()
		}
		return nil
	})
	return func() map[int64]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

func three(t *testing.T, r *rig) (all []*tap) {
	for range 3 {
		all = append(all, r.open(t, "orders", 0))
	}
	return all
}

// Lanes that begin together are one feed, and every place is asked for once.
func TestSharedReading(t *testing.T) {
	for _, opt := range versionsOf(6, 12, 18) {
		opts := options()
		opts.PartitionBytes, opts.FetchBytes, opts.BacklogWait = 3000, 3000, 200*time.Millisecond
		r := start(t, opts, kfake.NumBrokers(1), opt)
		places := r.places()
		var end int64
		for range 30 {
			end = r.write(t, "orders", 0, 2, 1000)
		}
		all := three(t, r)
		for _, x := range all {
			x.cursor.Ask()
		}
		for range 10 {
			for _, x := range all {
				x.reach(t, end)
			}
			end = r.write(t, "orders", 0, 2, 1000)
		}
		if n := feeds(all[0]); n != 1 {
			t.Errorf("%d feeds", n)
		}
		for at, n := range places() {
			if n > 1 && at < 60 { // at the end a poll that has waited in vain asks for the same place again
				t.Errorf("%d is asked for %d times", at, n)
			}
		}
	}
}

// A lane that holds leaves the others, who go on, once they are hungry and their patience is used up; it comes back where they are.
func TestLeaveAndJoin(t *testing.T) {
	r := start(t, options(), kfake.NumBrokers(1))
	all := three(t, r)
	for _, x := range all {
		x.cursor.Ask()
	}
	end := r.write(t, "orders", 0, 3, 100)
	for _, x := range all {
		x.reach(t, end)
	}
	all[0].busy.Store(true)
	for round := range 3 {
		all[0].cursor.Hold()
		eventually(t, "the end of the patience", func() bool { return feeds(all[0]) == 2 })
		for range 20 {
			end = r.write(t, "orders", 0, 3, 2000)
		}
		for _, x := range all[1:] {
			x.reach(t, end)
		}
		got := all[0].got
		all[0].cursor.Ask()
		all[0].reach(t, end)
		eventually(t, fmt.Sprintf("round %d: one feed again", round), func() bool { return feeds(all[0]) == 1 })
		if all[0].got-got != 20 {
			t.Errorf("%d batches, want 20", all[0].got-got)
		}
		end = r.write(t, "orders", 0, 1, 100)
		for _, x := range all {
			x.reach(t, end)
		}
	}
}

// Who holds with little in hand is stopped by something else: it is not waited for.
func TestStoppedLeavesAtOnce(t *testing.T) {
	r := start(t, options(), kfake.NumBrokers(1))
	all := three(t, r)
	for _, x := range all {
		x.cursor.Ask()
	}
	end := r.write(t, "orders", 0, 3, 100)
	for _, x := range all {
		x.reach(t, end)
	}
	f := all[0].cursor.feed
	all[0].cursor.Hold()
	eventually(t, "two feeds", func() bool { return feeds(all[0]) == 2 })
	r.source.mu.Lock()
	defer r.source.mu.Unlock()
	if f.grace.used != 0 || len(f.members) != 2 {
		t.Errorf("%v were waited, %d members are left", f.grace.used, len(f.members))
	}
}

// Nobody leaves while the others have enough to do.
func TestWaitForWhoHolds(t *testing.T) {
	r := start(t, options(), kfake.NumBrokers(1))
	all := three(t, r)
	for _, x := range all {
		x.busy.Store(true)
		x.cursor.Ask()
	}
	end := r.write(t, "orders", 0, 3, 100)
	for _, x := range all {
		x.reach(t, end)
	}
	all[0].cursor.Hold()
	f := all[0].cursor.feed
	looks := func() time.Time {
		r.source.mu.Lock()
		defer r.source.mu.Unlock()
		return f.grace.at
	}
	for range 3 * int(graceMost/graceCheck) / 2 { // longer than hungry ones would wait
		before := looks()
		eventually(t, "a look", func() bool { return looks() != before })
	}
	if n := feeds(all[0]); n != 1 {
		t.Fatalf("%d feeds", n)
	}
	all[0].cursor.Ask()
	end = r.write(t, "orders", 0, 3, 100)
	for _, x := range all {
		x.reach(t, end)
	}
	if n := feeds(all[0]); n != 1 {
		t.Errorf("%d feeds", n)
	}
}

// Who reads past a place where others stand is cut there, and goes on with them.
func TestMeet(t *testing.T) {
	b := newBench(t)
	b.at(b.one)
	y := &tap{t: t, changed: make(chan struct{}, 1)}
	y.cursor = b.source.Open("orders", [16]byte{1}, 0, y)
	y.gen, y.next = 1, 3
	y.cursor.MoveTo(3, -1, 1)
	y.cursor.Ask()
	b.source.mu.Lock()
	delete(b.source.homeless, y.cursor.feed)
	b.two.addLocked(y.cursor.feed)
	b.source.mu.Unlock()
	b.ask(b.one)
	b.ask(b.two)
	b.give(b.one, 0, 3, 6) // of which y has asked for 3 and what follows
	b.want(1, 3)
	if b.x.cursor.feed != y.cursor.feed {
		t.Fatal("two feeds")
	}
	b.give(b.two, 3, 6)
	b.want(3, 9)
	if y.got != 2 || y.next != 9 {
		t.Errorf("the other got %d batches up to %d", y.got, y.next)
	}
	if req := b.ask(b.two); req.Topics[0].Partitions[0].FetchOffset != 9 {
		t.Errorf("asked for %+v", req.Topics)
	}
}

// Who moves to a place that was already asked for waits for what is asked after that.
func TestJoinAfterMove(t *testing.T) {
	b := newBench(t)
	b.at(b.one)
	b.ask(b.one)
	y := &tap{t: t, changed: make(chan struct{}, 1), gen: 1}
	y.cursor = b.source.Open("orders", [16]byte{1}, 0, y)
	y.cursor.Ask()
	y.cursor.MoveTo(0, -1, 1)
	if b.x.cursor.feed != y.cursor.feed {
		t.Fatal("two feeds")
	}
	b.give(b.one, 0)
	b.want(0, 0)
	b.ask(b.one)
	b.give(b.one, 0)
	b.want(1, 3)
	if y.got != 1 {
		t.Errorf("the other got %d batches", y.got)
	}
}

// Everybody hears of an error, and everybody goes on from where he moves to.
func TestErrorsForAll(t *testing.T) {
	r := start(t, options(), kfake.NumBrokers(1))
	var truncated atomic.Bool
	r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if p, ok := asksFor(req, 0); !ok || p.FetchOffset != 3 || !truncated.Load() {
			return nil
		}
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 0, 0, 2
		return r.answer(req, "orders", rp)
	})
	all := three(t, r)
	r.write(t, "orders", 0, 3, 100)
	for _, x := range all {
		x.moveTo(1000)
		x.cursor.Ask()
	}
	for _, x := range all {
		x.wait(t, "the error", func() bool { return len(x.codes) == 1 })
	}
	truncated.Store(true)
	for _, x := range all {
		x.moveTo(0)
	}
	for _, x := range all {
		x.wait(t, "the end of the common log", func() bool { return len(x.diverge) == 1 })
	}
	truncated.Store(false)
	end := r.write(t, "orders", 0, 3, 100)
	for _, x := range all {
		x.moveTo(0)
	}
	for _, x := range all {
		x.reach(t, end)
		if want := []lane.Diverging{{Epoch: 0, EndOffset: 2}}; !slices.Equal(x.codes, []int16{kerr.OffsetOutOfRange.Code}) || !slices.Equal(x.diverge, want) {
			t.Errorf("codes %v, %+v", x.codes, x.diverge)
		}
	}
}

// The first link waits for the others, but not for ever.
func TestGate(t *testing.T) {
	for _, absent := range []int{0, 1} {
		opts := options()
		opts.Links = 2
		r := start(t, opts, kfake.NumBrokers(1))
		places := r.places()
		end := r.write(t, "orders", 0, 3, 100)
		began := time.Now()
		x := r.open(t, "orders", 0)
		x.cursor.Ask()
		r.source.Started()
		if len(places()) > 0 {
			t.Fatal("it did not wait")
		}
		if absent == 0 {
			y := r.open(t, "orders", 0)
			r.source.Started()
			y.cursor.Ask()
			y.reach(t, end)
		}
		x.reach(t, end)
		waited := time.Since(began)
		if absent == 0 && (waited > gateMost || feeds(x) != 1 || places()[0] != 1) {
			t.Errorf("%v, %d feeds, asked %v", waited, feeds(x), places())
		}
		if absent == 1 && waited < gateMost {
			t.Errorf("waited %v", waited)
		}
	}
}
