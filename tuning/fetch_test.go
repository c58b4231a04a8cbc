package tuning

import (
	"testing"
	"time"
)

func TestFetchSizer(t *testing.T) {
	const mib = 1 << 20
	at := func(rate float64, gap time.Duration) int {
		s := FetchSizer{Min: mib, Max: 32 * mib}
		if got := s.Bytes(); got != mib {
			t.Fatalf("before the first response: %d", got)
		}
		for range 20 {
			n := s.Bytes()
			s.Observe(gap, time.Duration(float64(n)/rate*1e9), n)
		}
		return s.Bytes()
	}
	for _, c := range []struct {
		what     string
		rate     float64 // bytes a second
		gap      time.Duration
		min, max int
	}{
		{"loopback", 2e9, 200 * time.Microsecond, mib, mib},
		{"loopback with a busy broker", 3e9, 1500 * time.Microsecond, mib, mib},
		{"10 Gbit/s, 10 ms: two connections carry it", 1250e6, 10 * time.Millisecond, 6_700_000, 6_720_000},
		{"400 Mbit/s, 100 ms", 50e6, 100 * time.Millisecond, 6_000_000, 6_500_000},
		{"1 Gbit/s, 100 ms", 125e6, 100 * time.Millisecond, 15_500_000, 15_800_000},
		{"10 Gbit/s, 300 ms: the limit", 1250e6, 300 * time.Millisecond, 32 * mib, 32 * mib},
		{"a slow line asks for little", 1e6, 20 * time.Millisecond, mib, mib},
	} {
		if got := at(c.rate, c.gap); got < c.min || got > c.max {
			t.Errorf("%s: %d bytes, want %d to %d", c.what, got, c.min, c.max)
		}
	}
}

// A fetch that waited at the broker for records must not pass for a long way.
func TestFetchSizerIgnoresWaits(t *testing.T) {
	const mib = 1 << 20
	s := FetchSizer{Min: mib, Max: 32 * mib}
	for i := range 16 {
		gap := 500 * time.Microsecond
		if i%2 == 0 {
			gap = 100 * time.Millisecond
		}
		s.Observe(gap, time.Millisecond, mib)
	}
	if got := s.Bytes(); got != mib {
		t.Fatalf("%d bytes", got)
	}
	s.Observe(time.Second, time.Microsecond, 100) // too small to tell
	if got := s.Bytes(); got != mib {
		t.Fatalf("%d bytes", got)
	}
}
