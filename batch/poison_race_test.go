//go:build race || invariants

package batch

import (
	"regexp"
	"testing"
)

const poisons = true

func TestOpen(t *testing.T) {
	pool := NewPool(0)
	first, second := pool.Get(10), pool.Get(20)
	second.Retain()
	open := pool.Open()
	if len(open) != 2 {
		t.Fatalf("open: %q, want two", open)
	}
	for i, want := range []string{`poison_race_test\.go:14: 10 bytes, 1 references$`, `poison_race_test\.go:14: 20 bytes, 2 references$`} {
		if !regexp.MustCompile(want).MatchString(open[i]) {
			t.Errorf("open: %q, want %s", open[i], want)
		}
	}
	first.Release()
	second.Release()
	second.Release()
	if open := pool.Open(); len(open) != 0 {
		t.Errorf("open after the last release: %q", open)
	}
}
