package bench

import "context"

// tinyBatches are what a producer makes that does not linger: ten records of 100 B.
var tinyBatches = Workload{Codec: "none", RecordBytes: 100, BatchBytes: 1100, Records: 10}

const (
	tinyPartitions = 64
	perBatchMax    = 4000 // ns
)

// SmallBatches measures kferry's CPU per batch where batches are tiny, and tells the kgo loop's for the same records.
func SmallBatches(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "small-batches"
	rounds, batches, loopRecords := 5, int64(2e6), int64(4e6)
	if short {
		rounds, batches, loopRecords = 1, 400_000, 1e6
	}
	tiny := haul{workload: tinyBatches, partitions: tinyPartitions, volume: batches * int64(tinyBatches.BatchBytes)}
	costs, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) { return h.forward(ctx, tiny) }},
		subject{"kgo-loop", func(ctx context.Context) (Cost, error) { return h.loop(ctx, tiny, loopRecords) }})
	if err != nil {
		return nil, err
	}
	loop := told(name, "small-batches-kgo-loop-cpu-per-batch", "ns/batch", costs[1], perBatch)
	return []Result{
		told(name, "small-batches-cpu-per-batch", "ns/batch", costs[0], perBatch).within(perBatchMax),
		loop,
		told(name, "small-batches-per-second", "batches/s", costs[0], batchesPerSecond),
	}, nil
}
