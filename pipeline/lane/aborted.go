package lane

import (
	"slices"

	"kferry/batch"
)

// abortedFilter says which transactional batches of one fetch response were aborted, from headers alone, as Kafka's
// consumer does (CompletedFetch.java): a producer's batches are aborted from the first offset that the list names until
// its abort marker. The list belongs to one response and is complete for it, so nothing is kept between responses: a
// fetch that begins inside a transaction, and a marker that comes a response later, both find their entry again.
type abortedFilter struct {
	todo   []AbortedTxn // not yet reached, by first offset
	active []int64      // producers inside an aborted transaction; few
}

// reset takes a response's list, which may be unsorted. It copies what it keeps.
func (f *abortedFilter) reset(list []AbortedTxn) {
	f.todo = append(f.todo[:0], list...)
	f.active = f.active[:0]
	slices.SortFunc(f.todo, func(a, b AbortedTxn) int {
		switch {
		case a.FirstOffset < b.FirstOffset:
			return -1
		case a.FirstOffset > b.FirstOffset:
			return 1
		}
		return 0
	})
}

// drops says whether b holds aborted data. Call it for every batch of the response, in order: control batches close
// transactions.
func (f *abortedFilter) drops(b batch.Batch) bool {
	if f == nil || len(f.todo) == 0 && len(f.active) == 0 {
		return false
	}
	for len(f.todo) > 0 && f.todo[0].FirstOffset < b.NextOffset() {
		if pid := f.todo[0].ProducerID; !slices.Contains(f.active, pid) {
			f.active = append(f.active, pid)
		}
		f.todo = f.todo[1:]
	}
	i := slices.Index(f.active, b.ProducerID())
	if i < 0 {
		return false
	}
	if b.IsControl() {
		if marker, ok := b.ControlType(); ok && marker == batch.Abort {
			f.active = slices.Delete(f.active, i, i+1)
		}
		return false
	}
	return b.IsTransactional()
}
