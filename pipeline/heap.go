package pipeline

import (
	"os"
	"runtime/debug"
)

// What the garbage collector leaves beside the data: for the process, and for each lane with its metadata, in bytes.
const (
	heapRoom        = 48 << 20
	heapRoomForLane = 16 << 10

	// garbage is what may lie about, in percent of what is live. Little is made while data flows, so a small share costs next to
	// nothing, and the metadata of ten thousand partitions, made anew at each refresh, does not double the process.
	garbage = 25
)

// limitHeap has the garbage collector keep the process near memory: buffers that are dropped for other sizes would else lie about until
// the heap has doubled. It is a soft limit; where what is live does not fit, the runtime spends up to half the processor on trying
// (runtime/debug.SetMemoryLimit), so every lane adds its part. GOMEMLIMIT wins.
func (p *Pipeline) limitHeap(lanes int) {
	if !p.opts.LimitHeap {
		return
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(p.cfg.MemoryBytes + heapRoom + int64(lanes)*heapRoomForLane)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}

// tidy gives back what a start with many lanes leaves behind. It collects, which takes some ms for each ten thousand lanes.
func (p *Pipeline) tidy() {
	if p.opts.LimitHeap {
		debug.FreeOSMemory()
	}
}
