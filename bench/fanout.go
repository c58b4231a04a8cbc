package bench

import "context"

const (
	fanOutTargets  = 3
	fanOutRatioMax = 0.8
)

// FanOut measures kferry's CPU for each byte that is delivered where one process copies a source to three targets, beside one
// link. Both deliver the same volume.
func FanOut(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "fan-out"
	rounds, volume := 5, int64(12e9)
	if short {
		rounds, volume = 3, 3e9
	}
	one := haul{workload: largeBatches, partitions: forwardPartitions, volume: volume}
	each := one
	each.volume /= fanOutTargets
	costs, err := alternate(ctx, rounds, h.Progress,
		subject{"three targets", func(ctx context.Context) (Cost, error) { return h.fanOut(ctx, each, fanOutTargets) }},
		subject{"one link", func(ctx context.Context) (Cost, error) { return h.forward(ctx, one) }})
	if err != nil {
		return nil, err
	}
	single := told(name, "one-link-cpu-per-byte", "ns/B", costs[1], perByte)
	return []Result{
		told(name, "fan-out-cpu-per-byte-delivered", "ns/B", costs[0], perByte).judged(single, fanOutRatioMax),
		single,
		told(name, "fan-out-bytes-per-second-delivered", "B/s", costs[0], bytesPerSecond),
	}, nil
}
