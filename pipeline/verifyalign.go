package pipeline

import (
	"context"
	"errors"
	"fmt"

	"kferry/batch"
)

// alignBatches bounds the search for the common place of two logs that both lost their beginning.
const alignBatches = 1 << 16

// enter puts both cursors to where the comparison begins. Where retention has moved a log's start, the other side goes
// forward to the place that belongs to it.
func (w *walk) enter(ctx context.Context) error {
	p := &w.pair
	srcAt, dstAt := max(p.srcStart, p.srcFirst), max(p.dstStart, p.dstFirst)
	w.src.seek(min(srcAt, p.srcNext))
	w.dst.seek(min(dstAt, p.dstNext))
	srcLost, dstLost := srcAt > p.srcStart && p.srcNext > p.srcStart, dstAt > p.dstStart && p.dstNext > p.dstStart
	if srcLost {
		w.skip("the source's retention has removed offsets %d to %d of what was copied", p.srcStart, min(srcAt, p.srcNext)-1)
	}
	if dstLost {
		w.skip("the target's retention has removed offsets %d to %d of the copy", p.dstStart, min(dstAt, p.dstNext)-1)
	}
	switch {
	case srcLost && srcAt >= p.srcNext, dstLost && dstAt >= p.dstNext:
		w.src.seek(p.srcNext) // nothing is left to compare with
		w.dst.seek(p.dstNext)
		return nil
	case srcLost || dstLost:
		// By their bytes first. Where the target's brokers have compressed them again, by what is in them.
		for _, mark := range []func(batch.Batch) (fingerprint, error){
			func(b batch.Batch) (fingerprint, error) { return printOf(b), nil },
			contentsOf,
		} {
			met, err := w.align(ctx, srcLost, dstLost, mark)
			if err != nil || met {
				return err
			}
			w.src.seek(srcAt)
			w.dst.seek(dstAt)
		}
		return errors.New("retention has moved a log's start, and no batch was found that both logs still hold")
	}
	return nil
}

// align finds the first batch that both logs still hold, as mark tells batches apart: the side that lost its beginning
// stands, the other one goes on to meet it. Where both lost theirs, they go on in turns.
func (w *walk) align(ctx context.Context, srcLost, dstLost bool, mark func(batch.Batch) (fingerprint, error)) (met bool, err error) {
	srcSeen, dstSeen := make(map[fingerprint]int64), make(map[fingerprint]int64)
	srcMoves, dstMoves := dstLost, srcLost
	for first := true; first || srcMoves || dstMoves; first = false {
		if srcMoves || first {
			s, dst, ok, err := w.advance(ctx, w.src, w.nextSource, mark, srcSeen, dstSeen, first || dstMoves)
			if err != nil {
				return false, err
			}
			if dst >= 0 {
				w.meet(s, dst)
				return true, nil
			}
			srcMoves = srcMoves && ok
		}
		if dstMoves || first {
			d, src, ok, err := w.advance(ctx, w.dst, w.nextTarget, mark, dstSeen, srcSeen, first || srcMoves)
			if err != nil {
				return false, err
			}
			if src >= 0 {
				w.meet(src, d)
				return true, nil
			}
			dstMoves = dstMoves && ok
		}
		if len(srcSeen) >= alignBatches || len(dstSeen) >= alignBatches {
			break
		}
	}
	return false, nil
}

// advance takes one batch of one side. there is the place of the same batch among those that the other side has shown, or -1;
// otherwise the batch is kept in seen for the other side to meet, where that still moves. ok is false at the end.
func (w *walk) advance(ctx context.Context, c *logCursor, next func(context.Context) (logItem, bool, error), mark func(batch.Batch) (fingerprint, error),
	seen, others map[fingerprint]int64, keep bool) (here, there int64, ok bool, err error) {
	x, ok, err := next(ctx)
	if err != nil || !ok {
		return -1, -1, false, err
	}
	own, err := mark(x.Batch)
	if err != nil {
		return -1, -1, false, fmt.Errorf("decode the batch at %d of %s/%d: %w", x.BaseOffset(), c.topic, c.partition, err)
	}
	if at, met := others[own]; met {
		return x.BaseOffset(), at, true, nil
	}
	if _, known := seen[own]; keep && !known {
		seen[own] = x.BaseOffset()
	}
	c.pop()
	return x.BaseOffset(), -1, true, nil
}

// meet puts both cursors to batches. The first offsets of a log's first batch may be gone, though all of it is sent.
func (w *walk) meet(src, dst int64) {
	w.src.seek(max(src, w.pair.srcFirst))
	w.dst.seek(max(dst, w.pair.dstFirst))
}
