package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// hotTopic has the partitions that are under load beside those that are measured.
const hotTopic = "hot"

// sample is one run of a scenario with many partitions.
type sample struct {
	delays
	observed
}

// Slow measures two thousand partitions in each of which something happens once a second.
func Slow(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "slow"
	rounds, t := 3, trickle{partitions: 2_000, records: 24_000, warm: 4_000, period: 500 * time.Microsecond}
	if short {
		rounds, t.records = 1, 10_000
	}
	runs, err := h.samples(ctx, rounds, t, nil)
	if err != nil {
		return nil, err
	}
	return []Result{
		told(name, "slow-cpu", "% of a core", runs, func(s sample) float64 { return share(s.observed) }),
		told(name, "slow-resident", "MB", runs, func(s sample) float64 { return resident(s.observed) }),
		told(name, "slow-added-p50", "ms", runs, func(s sample) float64 { return s.added50 }),
		told(name, "slow-added-p99", "ms", runs, func(s sample) float64 { return s.added99 }),
		told(name, "slow-direct-p50", "ms", runs, func(s sample) float64 { return s.direct50 }),
		told(name, "slow-direct-p99", "ms", runs, func(s sample) float64 { return s.direct99 }),
	}, nil
}

// Mixed measures what a record of a quiet partition waits for while others are under load.
func Mixed(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "mixed"
	load := hot{partitions: 50, recordBytes: 16 << 10, perSecond: 1_000}
	rounds, t := 3, trickle{partitions: 5_000, records: 2_000, warm: 200, period: 10 * time.Millisecond}
	if short {
		rounds, t.records = 1, 700
	}
	runs, err := h.samples(ctx, rounds, t, &load)
	if err != nil {
		return nil, err
	}
	return []Result{
		told(name, "mixed-quiet-added-p50", "ms", runs, func(s sample) float64 { return s.added50 }),
		told(name, "mixed-quiet-added-p99", "ms", runs, func(s sample) float64 { return s.added99 }),
		told(name, "mixed-quiet-direct-p50", "ms", runs, func(s sample) float64 { return s.direct50 }),
		told(name, "mixed-quiet-direct-p99", "ms", runs, func(s sample) float64 { return s.direct99 }),
		told(name, "mixed-cpu", "% of a core", runs, func(s sample) float64 { return share(s.observed) }),
		told(name, "mixed-resident", "MB", runs, func(s sample) float64 { return resident(s.observed) }),
	}, nil
}

func (h *Host) samples(ctx context.Context, rounds int, t trickle, beside *hot) (runs []sample, err error) {
	for round := range rounds {
		d, o, err := h.trickle(ctx, t, beside)
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", round+1, rounds, err)
		}
		runs = append(runs, sample{d, o})
		fmt.Fprintf(h.Progress, "kferry       run %d/%d: p50 +%.3f ms, p99 +%.3f ms; direct %.3f and %.3f ms; %.1f %% of a core, %.1f MB resident\n",
			round+1, rounds, d.added50, d.added99, d.direct50, d.direct99, share(o), resident(o))
	}
	return runs, nil
}

// hot is a paced load: records to each partition in turn.
type hot struct {
	partitions  int32
	recordBytes int
	perSecond   int
}

// followed is an error unless kferry has copied at least half of the load: with less it was no load.
func (l *hot) followed(ctx context.Context, s *service, t trickle) error {
	m, err := s.metrics(ctx)
	if err != nil {
		return err
	}
	due := time.Duration(t.records) * t.period * time.Duration(l.perSecond) / time.Second
	if got := int64(m["kferry_records_total"]) - int64(t.records); got < int64(due)/2 {
		return fmt.Errorf("%d records of the hot partitions were copied, about %d were due: the others had nothing beside them", got, due)
	}
	return nil
}

// run produces until ctx ends.
func (l *hot) run(ctx context.Context, addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(hotTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	failed := make(chan error, 1)
	value := make([]byte, l.recordBytes)
	start := time.Now()
	for i := 0; ; i++ {
		if pause(ctx, time.Until(start.Add(time.Duration(i)*time.Second/time.Duration(l.perSecond)))) != nil {
			return nil
		}
		client.Produce(ctx, &kgo.Record{Partition: int32(i) % l.partitions, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil && ctx.Err() == nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		select {
		case err := <-failed:
			return fmt.Errorf("load the hot partitions: %w", err)
		default:
		}
	}
}
