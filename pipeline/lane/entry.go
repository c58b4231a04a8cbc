package lane

import (
	"sync"

	"kferry/batch"
)

// Entry is a batch with its place: numbered, patched, on its way to the target. The lane owns it; a sink borrows it from
// Send until its Completion and reads Batch.Payload and Header.
type Entry struct {
	Batch  batch.Batch
	Header batch.Header // the 61 bytes that go out in place of the batch's own

	first    int64 // sequence of the first record since the epoch began, not wrapped
	count    int32 // records
	srcNext  int64 // source position once this entry, and what was dropped behind it, is done
	srcEpoch int32 // leader epoch of the batch before srcNext
	more     bool  // further parts of the same source batch follow: srcNext is still where that begins
	refused  bool  // the target will never take it as it is, so it stands nowhere
	runs     []Run // of a re-encoded batch; nil for one whose records lie as they did
}

// Size is the number of bytes that the batch takes on the wire.
func (e *Entry) Size() int { return e.Batch.Size() }

// window is the replay buffer: entries in the order of their sequences. The first `sent` are with the sink, the others
// wait to be sent. It grows on demand, so ten thousand quiet lanes cost nothing.
type window struct {
	ring []*Entry
	head int
	size int
	sent int
	free []*Entry // finished entries, used again; what is too much for a quiet lane goes to spares
}

// spares are finished entries of all lanes.
var spares = sync.Pool{New: func() any { return new(Entry) }}

func (w *window) at(i int) *Entry { return w.ring[(w.head+i)&(len(w.ring)-1)] }

// push appends a fresh entry and returns it for filling.
func (w *window) push() *Entry {
	if w.size == len(w.ring) {
		grown := make([]*Entry, max(8, 2*len(w.ring)))
		for i := range w.size {
			grown[i] = w.at(i)
		}
		w.ring, w.head = grown, 0
	}
	var e *Entry
	if n := len(w.free); n > 0 {
		e, w.free = w.free[n-1], w.free[:n-1]
	} else {
		e = spares.Get().(*Entry)
	}
	w.ring[(w.head+w.size)&(len(w.ring)-1)] = e
	w.size++
	return e
}

// pop takes the first entry out. The caller has released its batch.
func (w *window) pop() {
	e := w.at(0)
	e.Batch, e.runs = batch.Batch{}, nil
	w.ring[w.head] = nil
	w.head = (w.head + 1) & (len(w.ring) - 1)
	w.size--
	if w.sent > 0 {
		w.sent--
	}
	if len(w.free) < 8 {
		w.free = append(w.free, e)
	} else {
		spares.Put(e) // ten thousand lanes that once were busy
	}
}

// rest gives up the arrays of an empty window; its entries serve other lanes.
func (w *window) rest() {
	if w.size > 0 {
		return
	}
	for _, e := range w.free {
		spares.Put(e)
	}
	*w = window{}
}

// last is the entry behind which drops are counted, nil when the window is empty.
func (w *window) last() *Entry {
	if w.size == 0 {
		return nil
	}
	return w.at(w.size - 1)
}

// queue holds delivered batches that have no sequence yet.
type queue struct {
	items []queued
	head  int
}

type queued struct {
	batch    batch.Batch // none once recoding has parts
	aborted  bool
	recoding *recoding // nil for a batch that goes as it lies
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(b batch.Batch, aborted bool, r *recoding) {
	if q.head > 0 && q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	q.items = append(q.items, queued{b, aborted, r})
}

func (q *queue) front() *queued { return &q.items[q.head] }

func (q *queue) pop() {
	q.items[q.head] = queued{}
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head >= 256 && q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}
