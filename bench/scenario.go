package bench

import "context"

// Scenario is one room of the bench: it starts processes, measures, and returns its figures.
type Scenario struct {
	Name  string
	About string
	Run   func(ctx context.Context, h *Host, short bool) ([]Result, error)
}

// Scenarios are all there are, in the order in which they are listed.
func Scenarios() []Scenario {
	return []Scenario{
		{"forward", "kferry between a synthetic source and a discarding target, beside a TCP relay and a kgo loop", Forward},
		{"mm2", "kferry and MirrorMaker 2, tuned by hand, between two real brokers", MM2},
	}
}
