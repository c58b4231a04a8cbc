package tuning

import (
	"testing"
	"time"
)

func TestBudgetSizer(t *testing.T) {
	const mib = 1 << 20
	s := BudgetSizer{Min: mib, Max: 8 * mib}
	if got := s.Bytes(); got != mib {
		t.Fatalf("before the first answer: %d", got)
	}
	for _, c := range []struct {
		latency time.Duration
		want    int
	}{
		{200 * time.Microsecond, mib}, // loopback
		{100 * time.Millisecond, mib}, // one answer that waited says nothing
		{time.Hour, mib},
		{5 * time.Millisecond, 5368709}, // a broker that waits for its replicas
		{50 * time.Millisecond, 8 * mib},
		{300 * time.Millisecond, 8 * mib},
	} {
		n := len(s.latencies)
		if c.latency >= 100*time.Millisecond && c.want == mib {
			n = 1
		}
		for range n {
			s.Observe(c.latency)
		}
		if got := s.Bytes(); got != c.want {
			t.Errorf("%v: %d bytes, want %d", c.latency, got, c.want)
		}
	}
}
