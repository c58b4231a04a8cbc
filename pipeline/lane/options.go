package lane

import (
	"math"
	"time"
)

// Options are a machine's limits. All times are lengths of time, all sizes bytes.
type Options struct {
	Depth       int           // entries with the sink at once
	HeldBytes   int64         // above this the lane stops asking for more, below half of it it asks again
	Ahead       int64         // the same beyond what its connection may have under way, which follows the path
	KeepInDoubt time.Duration // a lane longer in doubt gives its buffers back and fetches them again later
	RetryMin    time.Duration // first pause before looking, or opening a stream, again
	RetryMax    time.Duration // the pauses double up to this
	ParkMin     time.Duration // first pause before a parked lane tries again
	ParkMax     time.Duration // the pauses double up to this
	SettleTime  time.Duration // how long the target's end must stand still where no producer state says what was written
	ForeignTime time.Duration // how long the target's end may lie beyond the expected before others are taken to write too
	MaxSequence int64         // an epoch ends before its sequences pass this
}

// DefaultOptions gives the limits for a lane that may hold held bytes.
func DefaultOptions(depth int, held int64) Options {
	return Options{
		Depth: depth, HeldBytes: held, Ahead: held, KeepInDoubt: time.Second,
		RetryMin: 20 * time.Millisecond, RetryMax: 2 * time.Second,
		ParkMin: 5 * time.Second, ParkMax: 5 * time.Minute,
		SettleTime: 250 * time.Millisecond, ForeignTime: 5 * time.Second,
		MaxSequence: math.MaxInt32,
	}
}
