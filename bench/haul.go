package bench

import (
	"context"
	"fmt"
	"time"
)

// haul is what one run moves.
type haul struct {
	workload   Workload
	partitions int32
	volume     int64        // bytes, about; the source rounds to whole batches
	tls        *Certificate // on both legs
}

func (l haul) source() SourceConfig {
	return SourceConfig{
		Topic: forwardTopic, Partitions: l.partitions, Workload: l.workload, TLS: l.tls,
		Batches: max(1, l.volume/int64(l.partitions)/int64(l.workload.BatchBytes)),
	}
}

// forward runs kferry once.
func (h *Host) forward(ctx context.Context, l haul) (Cost, error) { return h.fanOut(ctx, l, 1) }

// fanOut runs kferry once, from one source to so many targets. What arrived is all targets' together.
func (h *Host) fanOut(ctx context.Context, l haul, targets int) (sum Cost, err error) {
	source, err := h.start(ctx, roleSource, l.source())
	if err != nil {
		return sum, err
	}
	defer source.stop()
	var ends []*end
	var addrs []string
	for range targets {
		target, err := h.start(ctx, roleTarget, TargetConfig{TLS: l.tls})
		if err != nil {
			return sum, err
		}
		defer target.stop()
		ends, addrs = append(ends, target), append(addrs, target.Addr)
	}
	name, args, err := link{alias: "source", from: source.Addr, to: addrs[0], also: addrs[1:], tls: l.tls}.command(ctx, h)
	if err != nil {
		return sum, err
	}
	if sum.CPU, err = h.measure(ctx, name, args...); err != nil {
		return Cost{}, err
	}
	// Every batch once on each, as it was: kferry may not buy speed with a loss.
	var first, last time.Time
	for _, target := range ends {
		t, err := h.settled(ctx, target, func(t Tally) bool {
			return t.Records == source.Records && t.Bytes == source.Bytes && t.Duplicates+t.Refused == 0
		})
		if err != nil {
			return sum, err
		}
		if first.IsZero() || t.First.Before(first) {
			first = t.First
		}
		if t.Last.After(last) {
			last = t.Last
		}
		sum.Wall = last.Sub(first)
		sum.Batches, sum.Records, sum.Bytes = sum.Batches+t.Batches, sum.Records+t.Records, sum.Bytes+t.Bytes
	}
	return sum, nil
}

// relay runs a relay once.
func (h *Host) relay(ctx context.Context, cfg RelayConfig, l haul) (Cost, error) {
	stream := StreamConfig{l.workload, l.volume, l.tls}
	from, err := h.start(ctx, roleStreamSource, stream)
	if err != nil {
		return Cost{}, err
	}
	defer from.stop()
	to, err := h.start(ctx, roleStreamSink, stream)
	if err != nil {
		return Cost{}, err
	}
	defer to.stop()
	cfg.From, cfg.To, cfg.TLS = from.Addr, to.Addr, l.tls
	name, args, err := h.role(roleRelay, cfg)
	if err != nil {
		return Cost{}, err
	}
	cpu, err := h.measure(ctx, name, args...)
	if err != nil {
		return Cost{}, err
	}
	t, err := h.settled(ctx, to, func(t Tally) bool { return t.Bytes == l.volume })
	return Cost{CPU: cpu, Wall: t.Last.Sub(t.First), Bytes: t.Bytes}, err
}

// loop runs the kgo loop once, over records of l's content instead of its volume; about so many. Its cost counts the source's
// batches: it makes its own of them.
func (h *Host) loop(ctx context.Context, l haul, records int64) (Cost, error) {
	l.volume = records * int64(l.workload.RecordBytes) / 2 // ratio 2
	if l.workload.Records > 0 {
		l.volume = records / int64(l.workload.Records) * int64(l.workload.BatchBytes)
	}
	source, err := h.start(ctx, roleSource, l.source())
	if err != nil {
		return Cost{}, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleTarget, TargetConfig{Topics: map[string]int32{forwardTopic: l.partitions}})
	if err != nil {
		return Cost{}, err
	}
	defer target.stop()
	name, args, err := h.role(roleLoop, LoopConfig{
		From: source.Addr, To: target.Addr, Topic: forwardTopic, Partitions: l.partitions, Records: source.Records,
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
	return Cost{CPU: cpu, Wall: t.Last.Sub(t.First), Batches: source.Batches, Records: t.Records, Bytes: t.Bytes}, err
}
