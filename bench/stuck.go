package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

const (
	stuckMemory      = "256MiB"
	stuckResidentMax = 352 // MB
	stuckPartitions  = 512 // what lanes may hold together has to be more than the memory
	stuckPoll        = 50 * time.Millisecond
)

// jam is a run whose target stops answering for a while.
type jam struct {
	haul
	stop time.Duration
}

// jammed is what came of it.
type jammed struct {
	peak int64         // bytes resident, the most there ever was
	back time.Duration // from the target's first breath to the first append after it
}

// Stuck measures the memory of a kferry that may hold 256 MiB when its target stops answering under full load. Afterwards every
// record has to arrive, once.
func Stuck(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "stuck"
	rounds, j := 3, jam{haul{workload: largeBatches, partitions: stuckPartitions, volume: 8e9}, 20 * time.Second}
	if short {
		rounds, j.volume, j.stop = 1, 2e9, 5*time.Second
	}
	var runs []jammed
	for round := range rounds {
		run, err := h.stuck(ctx, j)
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", round+1, rounds, err)
		}
		runs = append(runs, run)
		fmt.Fprintf(h.Progress, "kferry       run %d/%d: %.1f MB at most, goes on after %.2f s\n",
			round+1, rounds, float64(run.peak)/1e6, run.back.Seconds())
	}
	return []Result{
		told(name, "stuck-resident-peak", "MB", runs, func(j jammed) float64 { return float64(j.peak) / 1e6 }).within(stuckResidentMax),
		told(name, "stuck-resume", "s", runs, func(j jammed) float64 { return j.back.Seconds() }),
	}, nil
}

func (h *Host) stuck(ctx context.Context, j jam) (run jammed, err error) {
	source, err := h.start(ctx, roleSource, j.source())
	if err != nil {
		return run, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleTarget, TargetConfig{})
	if err != nil {
		return run, err
	}
	defer target.stop()
	name, args, err := link{alias: "source", from: source.Addr, to: target.Addr, memory: stuckMemory}.command(ctx, h)
	if err != nil {
		return run, err
	}
	process, err := h.run(name, args...)
	if err != nil {
		return run, err
	}
	defer process.Stop()
	watch := func(done func(Tally) bool) (Tally, error) {
		for {
			t, err := target.tally()
			if err != nil || done(t) {
				return t, err
			}
			select {
			case <-process.Done():
				return t, fmt.Errorf("kferry ended with %d of %d bytes on the target\n%s", t.Bytes, source.Bytes, process.Tail())
			default:
			}
			if run.peak, err = memory(process.PID(), "VmHWM"); err != nil {
				return t, err
			}
			if err := pause(ctx, stuckPoll); err != nil {
				return t, err
			}
		}
	}
	if _, err := watch(func(t Tally) bool { return t.Bytes > source.Bytes/8 }); err != nil {
		return run, err
	}
	if err := target.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return run, fmt.Errorf("stop the target: %w", err)
	}
	err = pause(ctx, j.stop)
	breath := time.Now()
	if err := target.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return run, fmt.Errorf("wake the target: %w", err)
	}
	if err != nil {
		return run, err
	}
	before, err := target.tally()
	if err != nil {
		return run, err
	}
	// What the sockets held is taken first; more than that is a lane that goes on.
	next, err := watch(func(t Tally) bool { return t.Bytes > before.Bytes+source.Bytes/16 || t.Bytes == source.Bytes })
	if err != nil {
		return run, err
	}
	run.back = next.Last.Sub(breath)
	if _, err := watch(func(t Tally) bool { return t.Bytes >= source.Bytes }); err != nil {
		return run, err
	}
	if err := process.Wait(ctx); err != nil {
		return run, err
	}
	_, err = h.settled(ctx, target, func(t Tally) bool { return t.Records == source.Records && t.Bytes == source.Bytes })
	return run, err
}
