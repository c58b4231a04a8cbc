package bench

import (
	"context"
	"fmt"
)

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
)

// Forward measures kferry's CPU per byte beside the relay, in batches of 64 KiB, and per record beside the kgo loop, in records
// of 100 B. Start-up is inside every figure; the volumes make it small.
func Forward(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "forward"
	rounds, volume, loopRecords := 5, int64(12e9), int64(4e6)
	if short {
		rounds, volume, loopRecords = 3, 2e9, 1e6
	}
	byBytes, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) { return h.forward(ctx, largeBatches, volume) }},
		subject{"relay", func(ctx context.Context) (Cost, error) { return h.relay(ctx, largeBatches, volume) }})
	if err != nil {
		return nil, err
	}
	byRecords, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) { return h.forward(ctx, smallRecords, volume) }},
		subject{"kgo-loop", func(ctx context.Context) (Cost, error) { return h.loop(ctx, smallRecords, loopRecords) }})
	if err != nil {
		return nil, err
	}
	relay := told(name, "relay-cpu-per-byte", "ns/B", byBytes[1], perByte)
	loop := told(name, "kgo-loop-cpu-per-record", "ns/record", byRecords[1], perRecord)
	return []Result{
		told(name, "forward-cpu-per-byte", "ns/B", byBytes[0], perByte).judged(relay, perByteRatioMax),
		told(name, "forward-cpu-per-record", "ns/record", byRecords[0], perRecord).judged(loop, perRecordRatioMax),
		relay,
		loop,
		told(name, "forward-bytes-per-second", "B/s", byBytes[0], bytesPerSecond),
		told(name, "relay-bytes-per-second", "B/s", byBytes[1], bytesPerSecond),
	}, nil
}

// forward runs kferry once over volume bytes.
func (h *Host) forward(ctx context.Context, w Workload, volume int64) (Cost, error) {
	source, err := h.start(ctx, roleSource, sourceOf(w, volume))
	if err != nil {
		return Cost{}, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleTarget, map[string]int32{})
	if err != nil {
		return Cost{}, err
	}
	defer target.stop()
	name, args, err := h.link(ctx, "source", source.Addr, target.Addr, forwardTopic)
	if err != nil {
		return Cost{}, err
	}
	cpu, err := h.measure(ctx, name, args...)
	if err != nil {
		return Cost{}, err
	}
	// Every batch once, as it was: kferry may not buy speed with a loss.
	t, err := h.settled(ctx, target, func(t Tally) bool {
		return t.Records == source.Records && t.Bytes == source.Bytes && t.Duplicates+t.Refused == 0
	})
	return Cost{CPU: cpu, Wall: t.Last.Sub(t.First), Records: t.Records, Bytes: t.Bytes}, err
}

// relay runs the plain relay once over volume bytes.
func (h *Host) relay(ctx context.Context, w Workload, volume int64) (Cost, error) {
	from, err := h.start(ctx, roleStreamSource, StreamConfig{w, volume})
	if err != nil {
		return Cost{}, err
	}
	defer from.stop()
	to, err := h.start(ctx, roleStreamSink, nil)
	if err != nil {
		return Cost{}, err
	}
	defer to.stop()
	name, args, err := h.role(roleRelay, RelayConfig{from.Addr, to.Addr})
	if err != nil {
		return Cost{}, err
	}
	cpu, err := h.measure(ctx, name, args...)
	if err != nil {
		return Cost{}, err
	}
	t, err := h.settled(ctx, to, func(t Tally) bool { return t.Bytes == volume })
	return Cost{CPU: cpu, Wall: t.Last.Sub(t.First), Bytes: t.Bytes}, err
}

// loop runs the kgo loop once over about so many records.
func (h *Host) loop(ctx context.Context, w Workload, records int64) (Cost, error) {
	source, err := h.start(ctx, roleSource, sourceOf(w, records*int64(w.RecordBytes)/2)) // ratio 2
	if err != nil {
		return Cost{}, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleTarget, map[string]int32{forwardTopic: forwardPartitions})
	if err != nil {
		return Cost{}, err
	}
	defer target.stop()
	name, args, err := h.role(roleLoop, LoopConfig{
		From: source.Addr, To: target.Addr, Topic: forwardTopic, Partitions: forwardPartitions, Records: source.Records,
	})
	if err != nil {
		return Cost{}, err
	}
	cpu, err := h.measure(ctx, name, args...)
	if err != nil {
		return Cost{}, err
	}
	t, err := h.settled(ctx, target, func(t Tally) bool { return t.Records == source.Records && t.Refused == 0 })
	if err == nil && t.Bytes > source.Bytes*11/10 {
		err = fmt.Errorf("the loop wrote %d bytes for %d: its batches are too small to be a fair rival", t.Bytes, source.Bytes)
	}
	return Cost{CPU: cpu, Wall: t.Last.Sub(t.First), Records: t.Records, Bytes: t.Bytes}, err
}

func sourceOf(w Workload, volume int64) SourceConfig {
	return SourceConfig{
		Topic: forwardTopic, Partitions: forwardPartitions, Workload: w,
		Batches: max(1, volume/forwardPartitions/int64(w.BatchBytes)),
	}
}
