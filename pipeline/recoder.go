package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"kferry/batch"
	"kferry/batch/recode"
	"kferry/pipeline/lane"
)

// recoder re-encodes for all lanes. Its workers are few, so that a log that has to be re-encoded leaves the processors to those that
// pass as they are; a lane waits for one.
type recoder struct {
	idle  chan *recode.Coder
	limit int // bytes of records, of one batch
}

func newRecoder(pool *batch.Pool, memory int64) *recoder {
	workers := max(1, runtime.GOMAXPROCS(0)/2)
	r := &recoder{idle: make(chan *recode.Coder, workers), limit: int(min(memory/4, recode.MaxDecoded))}
	for range workers {
		r.idle <- recode.NewCoder(pool, r.limit)
	}
	return r
}

func (r *recoder) Recode(ctx context.Context, b batch.Batch, plan lane.Plan) ([]lane.Part, error) {
	var c *recode.Coder
	select {
	case c = <-r.idle:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { r.idle <- c }()
	outs, err := c.Rewrite(b, recode.Options{From: plan.From, MaxBytes: plan.MaxBytes, KeepAppendTime: plan.KeepAppendTime, Avoid: plan.Avoid})
	switch {
	case errors.Is(err, batch.ErrCRC):
		return nil, fmt.Errorf("%w: %w", lane.ErrCorrupt, err)
	case errors.Is(err, recode.ErrTooLarge):
		return nil, fmt.Errorf("%w: %w", lane.ErrTooLarge, err)
	case err != nil:
		return nil, fmt.Errorf("%w (%s): %w", lane.ErrUndecoded, plan.Reason, err)
	}
	n := 0
	for _, out := range outs {
		n += len(out.Runs)
	}
	parts, runs := make([]lane.Part, len(outs)), make([]lane.Run, 0, n)
	for i, out := range outs {
		at := len(runs)
		for _, run := range out.Runs {
			runs = append(runs, lane.Run(run))
		}
		parts[i] = lane.Part{Batch: out.Batch, Runs: runs[at:len(runs):len(runs)]}
	}
	return parts, nil
}
