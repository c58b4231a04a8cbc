package bench

import (
	"context"
	"fmt"
)

const (
	allocsPerBatchMax   = 0.2
	allocatedPerMegaMax = 8 << 10 // B
)

// moved is what a kferry allocated and forwarded between two scrapes.
type moved struct{ mallocs, allocated, batches, bytes float64 }

// Allocations measures what the whole process takes from the heap for each batch of 64 KiB while data flows steadily. The two
// scrapes are inside; nothing else asks meanwhile.
func Allocations(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "allocations"
	rounds, volume := 3, int64(20e9)
	if short {
		rounds, volume = 1, 4e9
	}
	var runs []moved
	for round := range rounds {
		m, err := h.allocations(ctx, haul{workload: largeBatches, partitions: forwardPartitions, volume: volume})
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", round+1, rounds, err)
		}
		runs = append(runs, m)
		fmt.Fprintf(h.Progress, "kferry       run %d/%d: %.0f allocations of %.0f B for %.0f batches of %.2f GB\n",
			round+1, rounds, m.mallocs, m.allocated, m.batches, m.bytes/1e9)
	}
	return []Result{
		told(name, "allocations-per-batch", "allocs/batch", runs, func(m moved) float64 { return m.mallocs / m.batches }).within(allocsPerBatchMax),
		told(name, "allocated-per-megabyte", "B/MB", runs, func(m moved) float64 { return m.allocated / (m.bytes / 1e6) }).within(allocatedPerMegaMax),
	}, nil
}

func (h *Host) allocations(ctx context.Context, l haul) (m moved, err error) {
	source, err := h.start(ctx, roleSource, l.source())
	if err != nil {
		return m, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleTarget, TargetConfig{})
	if err != nil {
		return m, err
	}
	defer target.stop()
	s, err := h.serve(ctx, link{alias: "source", from: source.Addr, to: target.Addr, forever: true})
	if err != nil {
		return m, err
	}
	defer s.Stop()
	// The target is asked how far it is: a scrape would allocate.
	at := func(part int64) (map[string]float64, error) {
		for {
			t, err := target.tally()
			if err != nil {
				return nil, err
			}
			if t.Bytes >= source.Bytes/8*part {
				return s.metrics(ctx)
			}
			if err := pause(ctx, settlePeriod); err != nil {
				return nil, err
			}
		}
	}
	before, err := at(2)
	if err != nil {
		return m, err
	}
	after, err := at(7)
	if err != nil {
		return m, err
	}
	grown := func(name string) float64 { return after[name] - before[name] }
	m = moved{grown("go_memstats_mallocs_total"), grown("go_memstats_alloc_bytes_total"), grown("kferry_batches_total"), grown("kferry_bytes_total")}
	if m.batches <= 0 || m.bytes <= 0 || m.mallocs <= 0 {
		return m, fmt.Errorf("between two scrapes: %+v", m)
	}
	_, err = h.settled(ctx, target, func(t Tally) bool { return t.Records == source.Records && t.Duplicates+t.Refused == 0 })
	return m, err
}
