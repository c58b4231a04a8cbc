package tuning

import "time"

// BudgetSizer finds how many bytes may be under way on one connection to a target, from how long its answers take. What is under way
// is memory that has left the processor's cache before it is sent; on a short path little of it keeps the connection full.
type BudgetSizer struct {
	Min, Max int // bytes

	latencies [16]time.Duration // of the last requests
	n         int
}

// fullRate is what one connection is taken to carry at most, in bytes a second. The budget follows the latency alone: a broker works
// off the requests of a connection one by one, so that what a smaller budget costs does not show in the rate it allows.
const fullRate = 1 << 30

// Observe takes the time from writing a request to its answer.
func (s *BudgetSizer) Observe(latency time.Duration) {
	s.latencies[s.n%len(s.latencies)] = latency
	s.n++
}

// Bytes is what a connection at full rate carries within the shortest of the last latencies; Min before the first answer.
func (s *BudgetSizer) Bytes() int {
	return int(min(max(int64(s.Least().Seconds()*fullRate), int64(s.Min)), int64(s.Max)))
}

// Least is the shortest of the last latencies, 0 before the first answer.
func (s *BudgetSizer) Least() time.Duration {
	least := s.latencies[0]
	for _, l := range s.latencies[:min(s.n, len(s.latencies))] {
		least = min(least, l)
	}
	return least
}
