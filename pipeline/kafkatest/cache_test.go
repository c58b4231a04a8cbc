package kafkatest

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCachedFillsOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // where macOS keeps it
	broken := errors.New("broken")
	if _, err := cached("set-1", func(dir string) error {
		_ = os.WriteFile(filepath.Join(dir, "half"), nil, 0o644)
		return broken
	}); err != broken {
		t.Fatalf("got %v, want %v", err, broken)
	}
	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			dir, err := cached("set-1", func(dir string) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
			})
			if err != nil {
				t.Error(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 || entries[0].Name() != "whole" {
				t.Errorf("%v, %v, want the whole and nothing of the try that broke", entries, err)
			}
		})
	}
	wg.Wait()
	if n := fills.Load(); n != 1 {
		t.Errorf("filled %d times, want once", n)
	}
}

func TestPortsAreOurs(t *testing.T) {
	var a, b ports
	defer a.release()
	defer b.release()
	one, err := a.take(20)
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.take(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range append(one, two...) {
		if seen[p] || p < firstPort || p >= lastPort {
			t.Errorf("port %d: given twice or out of range", p)
		}
		seen[p] = true
	}
}

func TestParseStat(t *testing.T) {
	user, sys, err := parseStat([]byte("42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 123 45 0 0"))
	if err != nil || user != 123*tick || sys != 45*tick {
		t.Errorf("%v, %v, %v, want 1.23s and 450ms", user, sys, err)
	}
	const short = "read cpu time: stat has 3 fields behind the name, want 13"
	if _, _, err := parseStat([]byte("42 (x) S 1 2")); err == nil || err.Error() != short {
		t.Errorf("%v, want %s", err, short)
	}
}
