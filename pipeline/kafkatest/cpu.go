package kafkatest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of /proc's times: USER_HZ, 100 on every architecture that Go supports on Linux.
const tick = 10 * time.Millisecond

// CPU reads what a process and its threads have used so far, in steps of 10 ms. The children that it has waited for are
// not in it. It needs Linux's /proc; see proc_pid_stat(5).
func CPU(pid int) (user, sys time.Duration, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("read cpu time of %d: %w", pid, err)
	}
	return parseStat(stat)
}

// parseStat takes fields 14 (utime) and 15 (stime). Field 2 is the program's name in brackets and may hold anything, so
// counting starts behind the last bracket, with field 3.
func parseStat(stat []byte) (user, sys time.Duration, err error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("read cpu time: stat has %d fields behind the name, want 13", len(fields))
	}
	var ticks [2]int64
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(string(fields[11+i]), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read cpu time: %w", err)
		}
	}
	return time.Duration(ticks[0]) * tick, time.Duration(ticks[1]) * tick, nil
}
