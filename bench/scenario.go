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
		{"forward", "kferry between a synthetic source and a discarding target, beside TCP relays and a kgo loop", Forward},
		{"small-batches", "the same with ten records of 100 B in a batch and 64 partitions, beside a kgo loop", SmallBatches},
		{"tls", "the same with TLS on both legs, beside a relay with TLS on both legs", TLS},
		{"fan-out", "kferry from one synthetic source to three discarding targets, beside one link", FanOut},
		{"idle", "ten thousand partitions in which nothing happens, beside a plain kgo consumer of them", Idle},
		{"stuck", "a target that stops answering under full load, with 256 MiB of memory", Stuck},
		{"latency", "a thousand records a second, one by one: what kferry adds to the way from producer to consumer", Latency},
		{"slow", "two thousand partitions with a record a second each", Slow},
		{"mixed", "five thousand quiet partitions beside fifty hot ones", Mixed},
		{"allocations", "what the whole process takes from the heap while batches of 64 KiB flow", Allocations},
		{"source-impact", "what a paced consumer of a real source feels of a backfill beside it, without and with a quota", SourceImpact},
		{"mm2", "kferry and MirrorMaker 2, tuned by hand, between two real brokers", MM2},
	}
}
