package source

import (
	"testing"
	"time"
)

// What is waited in vain is at most the budget at once, and a twentieth of the time from then on; waiting for nothing costs nothing.
func TestGrace(t *testing.T) {
	var g grace
	now := time.Unix(1000, 0)
	after := func(d time.Duration, vain bool) bool {
		now = now.Add(d)
		return g.wait(now, vain)
	}
	waits := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: waits %v", what, got)
		}
	}
	waits("the first", after(0, true), true)
	waits("499 ms later", after(499*time.Millisecond, true), true)
	waits("at 500 ms", after(time.Millisecond, true), false)
	after(0, false)
	waits("a second later", after(time.Second, true), true)
	waits("for 49 ms", after(49*time.Millisecond, true), true)
	waits("for 50 ms", after(time.Millisecond, true), false)
	after(0, false)
	waits("an hour later", after(time.Hour, true), true)
	waits("with the whole budget", after(499*time.Millisecond, true), true)
	waits("and no more", after(time.Millisecond, true), false)
}

// Who waits a tenth of the time in vain is out of it before long; who waits a twenty-fifth, never.
func TestGraceOfUnequals(t *testing.T) {
	lasts := func(vain, good time.Duration) bool {
		var g grace
		now := time.Unix(1000, 0)
		for range 1000 {
			g.wait(now, true)
			now = now.Add(vain)
			if !g.wait(now, false) {
				return false
			}
			now = now.Add(good)
		}
		return true
	}
	if lasts(20*time.Millisecond, 180*time.Millisecond) || !lasts(8*time.Millisecond, 192*time.Millisecond) {
		t.Error("not the share that is allowed")
	}
}
