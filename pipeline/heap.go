package pipeline

import (
	"os"
	"runtime/debug"
)

// What the garbage collector leaves beside the data: for the process, and for each lane with its metadata, in bytes.
const (
	heapRoom        = 48 << 20
	heapRoomForLane = 16 << 10
)

// limitHeap has the garbage collector keep the process near memory: buffers that are dropped for other sizes would else lie about until
// the heap has doubled. It is a soft limit; where what is live does not fit, the runtime spends up to half the processor on trying
// (runtime/debug.SetMemoryLimit), so every lane adds its part. GOMEMLIMIT wins.
func (p *Pipeline) limitHeap(lanes int) {
	if p.opts.LimitHeap && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(p.cfg.MemoryBytes + heapRoom + int64(lanes)*heapRoomForLane)
	}
}
