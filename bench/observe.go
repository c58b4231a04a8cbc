package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"kferry/pipeline/kafkatest"
)

const observePeriod = time.Second

// observed is what a process held and used over a while.
type observed struct {
	Resident int64 // bytes, the most that was seen
	CPU      time.Duration
	Wall     time.Duration
}

func resident(o observed) float64 { return float64(o.Resident) / 1e6 }
func share(o observed) float64    { return 100 * o.CPU.Seconds() / o.Wall.Seconds() }

// observe watches a process for a while. CPU time has the kernel's resolution of 10 ms.
func observe(ctx context.Context, pid int, during time.Duration) (o observed, err error) {
	began := time.Now()
	before, err := cpuTime(pid)
	if err != nil {
		return o, err
	}
	end := time.NewTimer(during)
	defer end.Stop()
	tick := time.NewTicker(observePeriod)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-end.C:
			over = true
		case <-ctx.Done():
			return o, context.Cause(ctx)
		}
		now, err := memory(pid, "VmRSS")
		if err != nil {
			return o, err
		}
		o.Resident = max(o.Resident, now)
	}
	after, err := cpuTime(pid)
	o.CPU, o.Wall = after-before, time.Since(began)
	return o, err
}

func cpuTime(pid int) (time.Duration, error) {
	user, sys, err := kafkatest.CPU(pid)
	return user + sys, err
}

// memory reads a size of a process in bytes: VmRSS is what is resident now, VmHWM the most that ever was. It needs Linux's
// /proc; see proc_pid_status(5).
func memory(pid int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory of %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory of %d: %w", pid, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read memory of %d: no %s in its status", pid, field)
}

// pause waits unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
