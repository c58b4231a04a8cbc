package source

import (
	"testing"
	"time"
)

// apart is a bench whose x asks from 0 on, and a second lane that has enough to do and asks from 6 on, at the fetcher two.
func apart(t *testing.T) (b *bench, y *tap) {
	b = newBench(t)
	b.x.cursor.Hold()
	y = &tap{t: t, changed: make(chan struct{}, 1), gen: 1, next: 3}
	y.busy.Store(true)
	y.cursor = b.source.Open("orders", [16]byte{1}, 0, y)
	y.cursor.MoveTo(3, -1, 1)
	y.cursor.Ask()
	b.source.mu.Lock()
	delete(b.source.homeless, y.cursor.feed)
	b.two.addLocked(y.cursor.feed)
	b.source.mu.Unlock()
	b.ask(b.two)
	b.give(b.two, 3)
	return b, y
}

func asks(f *fetcher) bool { return f.build(lastFetch, 1000) }

// Who is a little ahead and has enough to do waits for who comes up.
func TestYield(t *testing.T) {
	b, y := apart(t)
	if !asks(b.two) {
		t.Fatal("waits for one that holds")
	}
	b.x.cursor.Ask()
	b.at(b.one)
	if asks(b.two) {
		t.Fatal("does not wait")
	}
	b.ask(b.one)
	b.give(b.one, 0)
	if asks(b.two) {
		t.Fatal("does not go on waiting")
	}
	b.ask(b.one)
	b.give(b.one, 3, 6)
	b.want(2, 6)
	if b.x.cursor.feed != y.cursor.feed || !asks(b.two) {
		t.Fatal("they do not read together")
	}
	b.give(b.two, 6)
	b.want(3, 9)
	if y.got != 2 || y.next != 9 {
		t.Errorf("the other got %d batches up to %d", y.got, y.next)
	}
}

// Nobody waits when it would cost something, or for one that does not come, or is far behind.
func TestYieldEnds(t *testing.T) {
	for what, f := range map[string]func(b *bench, y *tap){
		"hungry": func(_ *bench, y *tap) { y.busy.Store(false) },
		"holds":  func(b *bench, _ *tap) { b.x.cursor.Hold() },
		"closed": func(b *bench, _ *tap) { b.x.cursor.Close() },
		"ahead":  func(b *bench, _ *tap) { b.x.moveTo(7) },
		"far":    func(_ *bench, y *tap) { y.cursor.feed.density = littleAhead },
	} {
		b, y := apart(t)
		b.x.cursor.Ask()
		if asks(b.two) {
			t.Fatalf("%s: does not wait", what)
		}
		f(b, y)
		b.source.judge(time.Now())
		if !asks(b.two) {
			t.Errorf("%s: goes on waiting", what)
		}
	}
}

// Who moves to where one waits for him ends the waiting.
func TestMoveToWhoYields(t *testing.T) {
	b, y := apart(t)
	b.source.mu.Lock()
	b.two.quiet = true
	b.source.mu.Unlock()
	b.x.cursor.Ask()
	b.x.moveTo(6)
	if f := y.cursor.feed; b.x.cursor.feed != f || f.fetcher != nil || !f.wantsLocked() || b.two.asking != 0 {
		t.Errorf("%d ask, %+v", b.two.asking, f)
	}
}
