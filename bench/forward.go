package bench

import "context"

// The pinned workloads of scenario forward.
var (
	smallRecords = Workload{Codec: "zstd", RecordBytes: 100, BatchBytes: 100_000}
	// largeBatches is the least that the figure per byte allows, so the hardest: 64 KiB.
	largeBatches = Workload{Codec: "lz4", RecordBytes: 1000, BatchBytes: 64 << 10}
)

const (
	forwardTopic      = "bench"
	forwardPartitions = 8

	perByteRatioMax   = 1.6
	perRecordRatioMax = 1.0 / 20

	// What the data plane is built to: against the cheapest of three relays, and the loop.
	cheapestRatioMax      = 1.35
	finePerRecordRatioMax = 1.0 / 40
)

// Forward measures kferry's CPU per byte beside three relays, in batches of 64 KiB, and per record beside the kgo loop, in
// records of 100 B. Start-up is inside every figure; the volumes make it small.
func Forward(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "forward"
	rounds, volume, loopRecords := 5, int64(12e9), int64(4e6)
	if short {
		rounds, volume, loopRecords = 3, 2e9, 1e6
	}
	large := haul{workload: largeBatches, partitions: forwardPartitions, volume: volume}
	small := haul{workload: smallRecords, partitions: forwardPartitions, volume: volume}
	byBytes, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) { return h.forward(ctx, large) }},
		subject{"relay", func(ctx context.Context) (Cost, error) { return h.relay(ctx, relaySmall, large) }},
		subject{"relay-1m", func(ctx context.Context) (Cost, error) { return h.relay(ctx, relayLarge, large) }},
		subject{"relay-writev", func(ctx context.Context) (Cost, error) { return h.relay(ctx, relayGather, large) }})
	if err != nil {
		return nil, err
	}
	byRecords, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) { return h.forward(ctx, small) }},
		subject{"kgo-loop", func(ctx context.Context) (Cost, error) { return h.loop(ctx, small, loopRecords) }})
	if err != nil {
		return nil, err
	}
	relay := told(name, "relay-cpu-per-byte", "ns/B", byBytes[1], perByte)
	relay1M := told(name, "relay-1m-cpu-per-byte", "ns/B", byBytes[2], perByte)
	relayWritev := told(name, "relay-writev-cpu-per-byte", "ns/B", byBytes[3], perByte)
	loop := told(name, "kgo-loop-cpu-per-record", "ns/record", byRecords[1], perRecord)
	return []Result{
		told(name, "forward-cpu-per-byte", "ns/B", byBytes[0], perByte).judged(relay, perByteRatioMax),
		told(name, "forward-cpu-per-record", "ns/record", byRecords[0], perRecord).judged(loop, perRecordRatioMax),
		told(name, "forward-cpu-per-byte-cheapest", "ns/B", byBytes[0], perByte).
			judged(cheapest(relay, relay1M, relayWritev), cheapestRatioMax),
		told(name, "forward-cpu-per-record-fine", "ns/record", byRecords[0], perRecord).judged(loop, finePerRecordRatioMax),
		relay,
		relay1M,
		relayWritev,
		loop,
		told(name, "forward-bytes-per-second", "B/s", byBytes[0], bytesPerSecond),
		told(name, "relay-bytes-per-second", "B/s", byBytes[1], bytesPerSecond),
	}, nil
}
