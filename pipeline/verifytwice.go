package pipeline

import (
	"context"

	"kferry/batch"
)

// ringBatches is how many pairs are remembered, to recognise what stands on the target twice.
const ringBatches = 1 << 12

// paired is a pair that was found equal.
type paired struct {
	print fingerprint
	src   int64
}

// fingerprint tells batches apart by their headers; equal on both sides of a raw copy.
type fingerprint struct {
	payload uint32 // CRC-32C
	size    int
	count   int32
	base    int64 // timestamp
	codec   batch.Codec
}

func printOf(b batch.Batch) fingerprint {
	return fingerprint{b.PayloadCRC(), b.Size(), b.Count(), b.BaseTimestamp(), b.Codec()}
}

func (w *walk) remember(x paired) {
	if at := w.ringed % ringBatches; at < len(w.ring) {
		w.ring[at] = x
	} else {
		w.ring = append(w.ring, x)
	}
	w.ringed++
	w.ringOld = max(w.ringOld, w.ringed-ringBatches)
}

// repeats goes back on the source where the target repeats what it already had: after an end that was not clean the link
// went back too.
func (w *walk) repeats(ctx context.Context, s, d logItem, haveSrc bool) (back bool, err error) {
	if !w.ours(d) {
		return false, nil
	}
	mark := printOf(d.Batch)
	for i := 1; i <= w.ringed-w.ringOld; i++ {
		was := w.ring[(w.ringed-i)%ringBatches]
		if was.print != mark {
			continue
		}
		if w.twice == nil {
			w.twice = w.differ(was.src, d.BaseOffset(), DiffDoubled, "")
		}
		for j := w.ringed - i; j < w.ringed; j++ {
			w.doubled += int64(w.ring[j%ringBatches].print.count)
			w.records -= int64(w.ring[j%ringBatches].print.count)
		}
		w.batches -= int64(i)
		w.ringed -= i
		w.src.seek(max(was.src, w.pair.srcFirst))
		return true, nil
	}
	return false, nil
}
