package bench

import (
	"encoding/binary"
	"net"

	"github.com/twmb/franz-go/pkg/kbin"
)

// fetchPart is what one partition gets in one answer.
type fetchPart struct {
	fetchTarget
	code  int16
	bytes int // of batches, the last of which may be cut
}

// fetchAnswer lays out a Fetch response (v4 to v18) as kmsg would, except that the batches stay where they are: buffers points
// into b for the frame and the base offsets, and into the ring for the rest. The layout follows kmsg's FetchResponse.AppendTo.
type fetchAnswer struct {
	version int16
	parts   []fetchPart
	b       []byte // may move as it grows: what buffers points to keeps its content
	mark    int    // b before it is in buffers
	total   int    // bytes in buffers
	buffers net.Buffers
}

func (a *fetchAnswer) flexible() bool { return a.version >= 12 }

func (a *fetchAnswer) open(sessionID int32, topic string, topicID [16]byte, parts []fetchPart) {
	a.parts = parts
	a.b = kbin.AppendInt32(a.b, 0) // throttle
	if a.version >= 7 {
		a.b = kbin.AppendInt16(a.b, 0)
		a.b = kbin.AppendInt32(a.b, sessionID)
	}
	if len(parts) == 0 {
		a.arrayLen(0)
		return
	}
	a.arrayLen(1)
	switch {
	case a.version >= 13:
		a.b = append(a.b, topicID[:]...)
	case a.flexible():
		a.b = kbin.AppendCompactString(a.b, topic)
	default:
		a.b = kbin.AppendString(a.b, topic)
	}
	a.arrayLen(len(parts))
}

// partition opens p's entry: batch has to follow until p.bytes are there.
func (a *fetchAnswer) partition(p fetchPart, end int64) {
	a.b = kbin.AppendInt32(a.b, p.partition)
	a.b = kbin.AppendInt16(a.b, p.code)
	a.b = kbin.AppendInt64(a.b, end) // high watermark
	a.b = kbin.AppendInt64(a.b, end) // last stable offset
	if a.version >= 5 {
		a.b = kbin.AppendInt64(a.b, 0) // log start
	}
	a.arrayLen(0) // aborted transactions
	if a.version >= 11 {
		a.b = kbin.AppendInt32(a.b, -1) // preferred replica
	}
	if a.flexible() {
		a.b = kbin.AppendUvarint(a.b, uint32(p.bytes)+1)
	} else {
		a.b = kbin.AppendInt32(a.b, int32(p.bytes))
	}
}

// batch adds at most rest bytes of a batch under another base offset and returns how many.
func (a *fetchAnswer) batch(batch []byte, baseOffset int64, rest int) int {
	var base [8]byte
	binary.BigEndian.PutUint64(base[:], uint64(baseOffset))
	a.b = append(a.b, base[:min(rest, len(base))]...)
	a.flush()
	batch = batch[:min(rest, len(batch))]
	if len(batch) > len(base) {
		a.buffers = append(a.buffers, batch[len(base):])
		a.total += len(batch) - len(base)
	}
	return len(batch)
}

func (a *fetchAnswer) endPartition() { a.tags() }

// end closes the frame; buffers is then the whole of it.
func (a *fetchAnswer) end() {
	if len(a.parts) > 0 {
		a.tags()
	}
	a.tags()
	a.flush()
	binary.BigEndian.PutUint32(a.buffers[0], uint32(a.total-4))
}

func (a *fetchAnswer) flush() {
	if a.mark == len(a.b) {
		return
	}
	a.buffers = append(a.buffers, a.b[a.mark:])
	a.total += len(a.b) - a.mark
	a.mark = len(a.b)
}

func (a *fetchAnswer) tags() {
	if a.flexible() {
		a.b = append(a.b, 0)
	}
}

func (a *fetchAnswer) arrayLen(n int) {
	if a.flexible() {
		a.b = kbin.AppendCompactArrayLen(a.b, n)
	} else {
		a.b = kbin.AppendArrayLen(a.b, n)
	}
}
