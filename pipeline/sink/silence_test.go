package sink

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// A target that is silent for long is left what was sent to it: what waits behind goes back, nothing more is taken; when it answers, all
// goes on.
func TestSilence(t *testing.T) {
	opts := options()
	opts.Conns, opts.RequestBytes, opts.BudgetBytes = 1, 1000, 1000
	r := start(t, opts)
	a, b := newAnswers(), newAnswers()
	mine, theirs := entries(t, 1, 2, 939), entries(t, 2, 2, 939)
	s, other := r.open(t, "orders", 0, a.to), r.open(t, "orders", 1, b.to)
	s.Send(mine[:1])
	check(t, a.wait(t, 1), mine[:1], lane.Acked)

	r.proxy.Answers.Stall()
	begun := time.Now()
	s.Send(mine[1:])
	eventually(t, "a request under way", func() bool { return r.sink.Stats().Flying == 1000 })
	other.Send(theirs)
	check(t, b.wait(t, 2), theirs, lane.Unsent, lane.Unsent)
	if waited := time.Since(begun); waited < muteAfter {
		t.Errorf("given back after %v", waited)
	}
	if n := r.sink.Stats(); n.Mute != 1 || n.Flying != 1000 || n.Queued != 0 {
		t.Errorf("%+v", n)
	}
	if _, err := r.sink.Partition("orders", 1).Open(b.to); !errors.Is(err, ErrMute) {
		t.Errorf("a stream of a connection that does not answer: %v", err)
	}

	r.proxy.Answers.Resume()
	check(t, a.wait(t, 2), mine, lane.Acked)
	eventually(t, "the connection answers", func() bool { return r.sink.Stats().Mute == 0 })
	again := newAnswers()
	r.open(t, "orders", 1, again.to).Send(theirs)
	check(t, again.wait(t, 2), theirs, lane.Acked)
}

// A write that a quota holds up is no silence, and the time it takes says nothing of the path.
func TestQuotaIsNoSilence(t *testing.T) {
	opts := options()
	opts.BudgetBytes = 8 << 20
	r := start(t, opts)
	x := newSender(r.sink, 0)
	x.block(true)
	defer x.block(false)
	x.pauseUntil = time.Now().Add(time.Hour)
	x.blockedLong()
	if x.mute {
		t.Error("mute within the silence that a quota asked for")
	}
	before := x.budget.Bytes()
	body := kmsg.NewPtrProduceResponse()
	body.Version = 8
	answer := func(sent time.Time) {
		t.Helper()
		x.flying = []*flight{{sent: sent}}
		if _, _, err := x.land(cluster.Response{Version: 8, Body: body.AppendTo(nil), Sent: sent, Done: sent.Add(time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	answer(x.pauseUntil.Add(-time.Minute))
	if n := x.budget.Bytes(); n != before {
		t.Errorf("the budget goes from %d to %d by an answer that a quota held up", before, n)
	}
	answer(x.pauseUntil.Add(time.Minute))
	if n := x.budget.Bytes(); n <= before {
		t.Errorf("the budget stays at %d with answers that take a second", n)
	}
	x.pauseUntil = time.Now()
	x.blockedLong()
	if !x.mute {
		t.Error("a write that lasts is no silence after the quota's")
	}
}
