package bench

import (
	"context"
	"fmt"
	"time"
)

const (
	idleResidentMax = 100 // MB
	idleShareMax    = 2   // % of a core
)

// quiet is a run with nothing to move.
type quiet struct {
	partitions int32
	settle     time.Duration // from ready until it is watched: start-up, its garbage and its first checkpoints are over
	during     time.Duration
}

// Idle measures what ten thousand partitions cost in which nothing happens, and what they cost a plain kgo consumer.
func Idle(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "idle"
	rounds, q := 3, quiet{10_000, 15 * time.Second, 30 * time.Second}
	if short {
		rounds, q.during = 1, 5*time.Second // it settles as long: before, it holds what start-up left
	}
	var ours, rival []observed
	for round := range rounds {
		for _, s := range []struct {
			name string
			run  func(context.Context, quiet) (observed, error)
			into *[]observed
		}{{"kferry", h.idle, &ours}, {"consumer", h.idleConsumer, &rival}} {
			o, err := s.run(ctx, q)
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", s.name, round+1, rounds, err)
			}
			*s.into = append(*s.into, o)
			fmt.Fprintf(h.Progress, "%-12s run %d/%d: %6.1f MB resident, %.2f %% of a core over %.1f s\n",
				s.name, round+1, rounds, resident(o), share(o), o.Wall.Seconds())
		}
	}
	one, err := h.idle(ctx, quiet{1, q.settle, q.during})
	if err != nil {
		return nil, fmt.Errorf("one partition: %w", err)
	}
	fmt.Fprintf(h.Progress, "kferry       one partition: %6.1f MB resident, %.2f %% of a core\n", resident(one), share(one))
	return []Result{
		told(name, "idle-resident", "MB", ours, resident).within(idleResidentMax),
		told(name, "idle-cpu", "% of a core", ours, share).within(idleShareMax),
		told(name, "idle-one-partition-resident", "MB", []observed{one}, resident),
		told(name, "idle-kgo-consumer-resident", "MB", rival, resident),
		told(name, "idle-kgo-consumer-cpu", "% of a core", rival, share),
	}, nil
}

func (h *Host) idleSource(ctx context.Context, q quiet) (*end, error) {
	return h.start(ctx, roleSource, SourceConfig{Topic: forwardTopic, Partitions: q.partitions, Workload: smallRecords})
}

func (h *Host) idle(ctx context.Context, q quiet) (observed, error) {
	source, err := h.idleSource(ctx, q)
	if err != nil {
		return observed{}, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleTarget, TargetConfig{})
	if err != nil {
		return observed{}, err
	}
	defer target.stop()
	s, err := h.serve(ctx, link{alias: "source", from: source.Addr, to: target.Addr, forever: true})
	if err != nil {
		return observed{}, err
	}
	defer s.Stop()
	if err := s.copies(ctx, q.partitions); err != nil {
		return observed{}, err
	}
	if err := pause(ctx, q.settle); err != nil {
		return observed{}, err
	}
	o, err := observe(ctx, s.PID(), q.during)
	if err != nil {
		return o, fmt.Errorf("%w\n%s", err, s.Tail())
	}
	return o, s.copies(ctx, q.partitions)
}

func (h *Host) idleConsumer(ctx context.Context, q quiet) (observed, error) {
	source, err := h.idleSource(ctx, q)
	if err != nil {
		return observed{}, err
	}
	defer source.stop()
	consumer, err := h.start(ctx, roleConsumer, ConsumerConfig{From: source.Addr, Topic: forwardTopic})
	if err != nil {
		return observed{}, err
	}
	defer consumer.stop()
	if err := pause(ctx, q.settle); err != nil {
		return observed{}, err
	}
	return observe(ctx, consumer.cmd.Process.Pid, q.during)
}
