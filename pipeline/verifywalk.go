package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/batch"
)

// aheadBatches is how many source batches are looked ahead, to name a gap.
const aheadBatches = 1 << 8

// walk compares one partition: it goes along both logs and pairs their batches in order. A pair with the same bytes is equal
// by its checksum; every other one is compared record by record, also across unequal bounds.
type walk struct {
	link     *Link
	pair     stretch
	src, dst *logCursor
	sum      bool // full checksums of both sides
	done     *atomic.Int64
	counted  int64 // source offset up to which done was counted

	srcRecs, dstRecs []*kgo.Record // of batches taken apart, not yet compared
	lax              bool          // a side has append times: the records' own cannot be compared
	ring             []paired      // pairs ringOld to ringed, each at its number modulo ringBatches
	ringOld, ringed  int
	compacted        string // where a log lacks records that it once had
	twice            *Difference

	batches, records, byRecord, doubled, foreign int64
	differences                                  []Difference
	uncompared, skipped                          []Span
}

func newWalk(l *Link, p stretch, sum bool, done *atomic.Int64) *walk {
	committed := l.cfg.Isolation == ReadCommitted
	return &walk{link: l, pair: p, sum: sum, done: done, counted: p.srcStart,
		src: &logCursor{cluster: l.from, topic: p.key.Topic, partition: p.key.Partition, committed: committed, end: p.srcNext},
		dst: &logCursor{cluster: l.to, topic: p.target, partition: p.key.Partition, committed: committed && p.pids == nil, end: p.dstNext}}
}

// run compares. What it finds stands in the walk; the error is ctx's.
func (w *walk) run(ctx context.Context) error {
	defer func() { w.srcRecs, w.dstRecs, w.src.items, w.dst.items, w.ring = nil, nil, nil, nil, nil }()
	err := w.enter(ctx)
	for more := err == nil; more; {
		more, err = w.step(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w.count(w.pair.srcNext)
	w.settle(err)
	return nil
}

// settle makes a result of how the walk ended.
func (w *walk) settle(err error) {
	var found *Difference
	switch {
	case err == nil:
	case errors.As(err, &found) && (w.compacted == "" || found.Kind == DiffDamaged || found.Kind == DiffForeign):
		w.differences = append(w.differences, *found)
	case found != nil:
		w.leave("compaction has removed records (%s), so the rest is not comparable; the first mismatch is at %s", w.compacted, found)
	default:
		w.leave("%v", err)
	}
	if w.twice != nil {
		w.twice.Text = fmt.Sprintf("records doubled from offset %d: %d records in all stand on the target once more, which an end that was not clean explains",
			w.twice.SrcOffset, w.doubled)
		w.differences = slices.Insert(w.differences, 0, *w.twice)
	}
}

func (d *Difference) Error() string { return d.String() }

func (w *walk) leave(format string, args ...any) {
	w.uncompared = append(w.uncompared, Span{w.pair.key.Topic, w.pair.key.Partition, fmt.Sprintf(format, args...)})
}

func (w *walk) skip(format string, args ...any) {
	w.skipped = append(w.skipped, Span{w.pair.key.Topic, w.pair.key.Partition, fmt.Sprintf(format, args...)})
}

func (w *walk) count(src int64) {
	if src = min(src, w.pair.srcNext); src > w.counted {
		w.done.Add(src - w.counted)
		w.counted = src
	}
}

func (w *walk) differ(src, dst int64, kind, format string, args ...any) *Difference {
	return &Difference{Topic: w.pair.key.Topic, Partition: w.pair.key.Partition, Target: w.pair.target,
		SrcOffset: src, DstOffset: dst, Kind: kind, Text: fmt.Sprintf(format, args...)}
}

// nextSource returns the next source batch that the link forwards, checked.
func (w *walk) nextSource(ctx context.Context) (x logItem, ok bool, err error) {
	for {
		if x, ok, err = w.src.head(ctx); err != nil || !ok {
			return x, ok, err
		}
		if err := w.check(x, true); err != nil {
			return x, false, err
		}
		w.holes(x, "source")
		if !x.aborted && !x.IsControl() && x.Count() != 0 {
			return x, true, nil
		}
		w.src.pop()
	}
}

// nextTarget returns the next target batch that counts, checked.
func (w *walk) nextTarget(ctx context.Context) (x logItem, ok bool, err error) {
	for {
		if x, ok, err = w.dst.head(ctx); err != nil || !ok {
			return x, ok, err
		}
		others := !w.ours(x)
		if !others || !w.link.cfg.OntoExisting {
			if err := w.check(x, false); err != nil {
				return x, false, err
			}
		}
		w.holes(x, "target")
		switch {
		case x.aborted || x.IsControl() || x.Count() == 0:
		case others && w.link.cfg.OntoExisting:
			w.foreign += int64(max(x.Count(), 1))
		default:
			return x, true, nil
		}
		w.dst.pop()
	}
}

// ours says whether the link wrote a target batch; without state every batch may be its.
func (w *walk) ours(x logItem) bool {
	return w.pair.pids == nil || slices.Contains(w.pair.pids, x.ProducerID())
}

func (w *walk) check(x logItem, source bool) error {
	if !w.sum {
		return nil
	}
	err := x.Verify()
	switch {
	case err == nil:
		return nil
	case source:
		return w.differ(x.BaseOffset(), -1, DiffDamaged, "the source's batch is damaged: %v", err)
	}
	return w.differ(-1, x.BaseOffset(), DiffDamaged, "the target's batch is damaged: %v", err)
}

// holes notes the first place where a log lacks records: only compaction does that.
func (w *walk) holes(x logItem, side string) {
	if w.compacted == "" && (x.gap || x.Magic() == 2 && !x.Dense()) {
		w.compacted = fmt.Sprintf("on the %s before or at offset %d", side, x.NextOffset()-1)
	}
}

// step compares one pair of batches, or of records where batches were taken apart. more is false at the end of both logs.
func (w *walk) step(ctx context.Context) (more bool, err error) {
	s, haveSrc, err := w.sourceOr(ctx)
	if err != nil {
		return false, err
	}
	d, haveDst, err := w.targetOr(ctx)
	if err != nil {
		return false, err
	}
	whole := len(w.srcRecs) == 0 && len(w.dstRecs) == 0
	switch {
	case !haveSrc && !haveDst:
		return false, nil
	case !haveDst:
		return false, w.missing(s)
	case whole && haveSrc && sameBatch(s.Batch, d.Batch):
		w.equal(s, d)
		return true, nil
	case whole:
		back, err := w.repeats(ctx, s, d, haveSrc)
		if err != nil || back {
			return err == nil, err
		}
	}
	if !haveSrc {
		return false, w.surplus(d)
	}
	return w.apart(ctx, s, d)
}

// sourceOr is nextSource, unless records of the last batch wait.
func (w *walk) sourceOr(ctx context.Context) (x logItem, ok bool, err error) {
	if len(w.srcRecs) > 0 {
		return logItem{}, true, nil
	}
	return w.nextSource(ctx)
}

func (w *walk) targetOr(ctx context.Context) (x logItem, ok bool, err error) {
	if len(w.dstRecs) > 0 {
		return logItem{}, true, nil
	}
	return w.nextTarget(ctx)
}

// sameBatch says whether two batches hold the same bytes and read the same.
func sameBatch(s, d batch.Batch) bool {
	if s.Magic() != 2 || d.Magic() != 2 || printOf(s) != printOf(d) {
		return false
	}
	return s.HasLogAppendTime() || d.HasLogAppendTime() || s.MaxTimestamp() == d.MaxTimestamp()
}

func (w *walk) equal(s, d logItem) {
	w.remember(paired{printOf(s.Batch), s.BaseOffset()})
	w.batches++
	w.records += int64(d.Count())
	w.src.pop()
	w.dst.pop()
	w.count(w.src.at)
}

// missing is the difference of a target that ends before its source.
func (w *walk) missing(s logItem) error {
	at := w.srcAt(s)
	return w.differ(at, w.pair.dstNext, DiffMissing, "the target ends, the source's offsets %d to %d are not there", at, w.pair.srcNext-1)
}

// surplus is the difference of a source that ends before its target.
func (w *walk) surplus(d logItem) error {
	if len(w.dstRecs) == 0 && !w.ours(d) {
		return w.alien(d)
	}
	at := w.dstAt(d)
	return w.differ(w.pair.srcNext, at, DiffExtra, "the target goes on behind the last copied record, to offset %d", w.pair.dstNext-1)
}

func (w *walk) alien(d logItem) error {
	return w.differ(-1, d.BaseOffset(), DiffForeign, "%d records of another writer (producer id %d): where others may write, set onto_existing: true",
		max(d.Count(), 1), d.ProducerID())
}

func (w *walk) srcAt(s logItem) int64 {
	if len(w.srcRecs) > 0 {
		return w.srcRecs[0].Offset
	}
	return s.BaseOffset()
}

func (w *walk) dstAt(d logItem) int64 {
	if len(w.dstRecs) > 0 {
		return w.dstRecs[0].Offset
	}
	return d.BaseOffset()
}

// apart compares record by record as far as both sides have records; the rest waits for the next batch.
func (w *walk) apart(ctx context.Context, s, d logItem) (more bool, err error) {
	srcWhole, dstWhole := len(w.srcRecs) == 0, len(w.dstRecs) == 0
	if srcWhole && dstWhole {
		w.lax = false
	}
	if srcWhole {
		if w.srcRecs, err = decode(s.Batch); err != nil {
			return false, w.differ(s.BaseOffset(), -1, DiffDamaged, "the source's batch cannot be decoded: %v", err)
		}
		w.lax = w.lax || s.HasLogAppendTime()
	}
	if dstWhole {
		if w.dstRecs, err = decode(d.Batch); err != nil {
			return false, w.differ(-1, d.BaseOffset(), DiffDamaged, "the target's batch cannot be decoded: %v", err)
		}
		w.lax = w.lax || d.HasLogAppendTime()
	}
	n := min(len(w.srcRecs), len(w.dstRecs))
	for i := range n {
		a, b := w.srcRecs[i], w.dstRecs[i]
		text := unlike(a, b, w.lax)
		if text == "" {
			continue
		}
		if dstWhole && !w.ours(d) {
			return false, w.alien(d)
		}
		if srcWhole && dstWhole {
			if to, ok := w.ahead(ctx, d); ok {
				return false, w.differ(s.BaseOffset(), d.BaseOffset(), DiffMissing, "the source's offsets %d to %d are not on the target", s.BaseOffset(), to-1)
			}
		}
		return false, w.differ(a.Offset, b.Offset, DiffChanged, "%s", text)
	}
	w.records += int64(n)
	w.byRecord += int64(n)
	w.srcRecs, w.dstRecs = w.srcRecs[n:], w.dstRecs[n:]
	if srcWhole {
		w.src.pop()
		w.count(w.src.at)
	}
	if dstWhole {
		w.dst.pop()
	}
	return true, nil
}

// ahead looks for d further on in the source, so that a gap is called one. It leaves the source's cursor anywhere: the walk
// ends here.
func (w *walk) ahead(ctx context.Context, d logItem) (at int64, found bool) {
	mark := printOf(d.Batch)
	for range aheadBatches {
		w.src.pop()
		s, ok, err := w.nextSource(ctx)
		if err != nil || !ok {
			return 0, false
		}
		if printOf(s.Batch) == mark {
			return s.BaseOffset(), true
		}
	}
	return 0, false
}
