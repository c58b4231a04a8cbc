package cluster

import "time"

// Backoff is a jittered, doubling, capped pause between attempts. It is pure: the random number comes in.
type Backoff struct {
	Min time.Duration // the first pause, at most
	Max time.Duration // no pause is longer
}

// DefaultBackoff returns the pauses of reconnecting: 100 ms to 10 s.
func DefaultBackoff() Backoff { return Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second} }

// Next returns the pause before attempt (0 is the first retry): uniform in [d/2, d) with d = Min doubled attempt times, at most
// Max. random gives numbers in [0, 1), as rand.Float64 does. Half the pause is fixed, so that a lane never spins; half is
// random, so that ten thousand do not come back together.
func (b Backoff) Next(random func() float64, attempt int) time.Duration {
	d := b.Min
	for ; attempt > 0 && d < b.Max; attempt-- {
		d *= 2
	}
	d = min(d, b.Max)
	return d/2 + time.Duration(random()*float64(d-d/2))
}
