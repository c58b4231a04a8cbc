package tuning

import "time"

// enoughRate is what one fetch connection is sized for at most, in bytes per second: 4 Gbit/s.
const enoughRate = 512 << 20

// FetchSizer finds how many bytes a fetch should ask for, from what fetches show: how long the first byte takes to come and
// how fast the rest follows. Enough is asked for that the bytes of one response cover the gap before the next one, with two
// connections in turn; more would only hold memory and leave the processor's cache. It needs no probing.
//
// On a short path the rate is that of memory, and a gap of a few milliseconds is the broker's work, not the path: to cover it
// would take responses that no cache holds. So no connection is sized for more than enoughRate.
type FetchSizer struct {
	Min, Max int // bytes

	// The last responses that were large enough to tell.
	sizes     [8]int
	transfers [8]time.Duration
	gaps      [8]time.Duration
	n         int
}

// Observe takes one response: gap from the request to its first byte, transfer from the first byte to the last.
func (s *FetchSizer) Observe(gap, transfer time.Duration, bytes int) {
	const telling = 128 << 10 // below this the socket's buffers hold it all at once and the rate says nothing
	if bytes < telling || gap < 0 {
		return
	}
	i := s.n % len(s.gaps)
	s.sizes[i], s.transfers[i], s.gaps[i] = bytes, max(transfer, 10*time.Microsecond), gap
	s.n++
}

// Bytes is what to ask for: 1.25 times the rate of the last responses times the shortest gap, Min before anything was seen.
// The rate is theirs together: a single one may have waited in the socket's buffer and seem to come at once.
func (s *FetchSizer) Bytes() int {
	if s.n == 0 {
		return s.Min
	}
	var size int
	var transfer time.Duration
	gap := s.gaps[0]
	for i := range min(s.n, len(s.gaps)) {
		size += s.sizes[i]
		transfer += s.transfers[i]
		gap = min(gap, s.gaps[i])
	}
	rate := min(float64(size)/transfer.Seconds(), enoughRate)
	return int(min(max(1.25*rate*gap.Seconds(), float64(s.Min)), float64(s.Max)))
}
