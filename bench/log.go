package bench

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// log is a partition of the discarding target: its end and what a broker remembers of its producers (ProducerStateManager).
type log struct {
	end       int64
	producers map[int64]*producer
}

type producer struct {
	epoch    int16
	lastTime int64 // maxTimestamp of the last batch
	window   []appended
}

// appended is one of the last five batches of a producer, by which a broker knows a duplicate.
type appended struct {
	first, last int32 // sequences
	base        int64
}

const windowMax = 5

// header is what the target reads of a batch.
type header struct {
	producerID int64
	epoch      int16
	sequence   int32
	count      int32
	time       int64
}

// checkHeader makes the checks of Kafka's LogValidator that need no record: the reason is empty for a batch that passes.
func checkHeader(b []byte) (h header, reason string) {
	be := binary.BigEndian
	if len(b) < batchHeaderBytes {
		return h, fmt.Sprintf("batch of %d B", len(b))
	}
	attributes := be.Uint16(b[21:])
	h = header{
		producerID: int64(be.Uint64(b[43:])), epoch: int16(be.Uint16(b[51:])), sequence: int32(be.Uint32(b[53:])),
		count: int32(be.Uint32(b[57:])), time: int64(be.Uint64(b[35:])),
	}
	lastDelta := int32(be.Uint32(b[23:]))
	switch {
	case be.Uint64(b) != 0:
		reason = fmt.Sprintf("base offset %d", be.Uint64(b))
	case int(be.Uint32(b[8:])) != len(b)-12:
		reason = fmt.Sprintf("length %d in a batch of %d B", be.Uint32(b[8:]), len(b))
	case b[16] != 2:
		reason = fmt.Sprintf("magic %d", b[16])
	case attributes&(1<<4|1<<5) != 0:
		reason = fmt.Sprintf("attributes %#x: transactional or control", attributes)
	case h.count < 1 || h.count != lastDelta+1:
		reason = fmt.Sprintf("%d records, last offset delta %d", h.count, lastDelta)
	case h.producerID >= 0 && h.sequence < 0:
		reason = fmt.Sprintf("producer %d with sequence %d", h.producerID, h.sequence)
	case crc32.Checksum(b[21:], castagnoli) != be.Uint32(b[17:]):
		reason = "wrong CRC"
	}
	return h, reason
}

// append takes a batch by number or says why not. A duplicate gets the base offset of the first. Stricter than Kafka up to 4.4
// in one thing: a producer that is unknown begins with sequence 0.
func (l *log) append(b header) (base int64, duplicate bool, verdict *kerr.Error) {
	base = l.end
	if b.producerID < 0 {
		l.end += int64(b.count)
		return base, false, nil
	}
	p := l.producers[b.producerID]
	if p == nil {
		p = &producer{epoch: b.epoch}
	}
	last := next(b.sequence, b.count-1)
	switch {
	case b.epoch < p.epoch:
		return -1, false, kerr.InvalidProducerEpoch
	case b.epoch > p.epoch || len(p.window) == 0:
		if b.sequence != 0 {
			return -1, false, kerr.OutOfOrderSequenceNumber
		}
		p.epoch, p.window = b.epoch, p.window[:0]
	default:
		for _, w := range p.window {
			if w.first == b.sequence && w.last == last {
				return w.base, true, nil
			}
		}
		if b.sequence != next(p.window[len(p.window)-1].last, 1) {
			return -1, false, kerr.OutOfOrderSequenceNumber
		}
	}
	if len(p.window) == windowMax {
		p.window = append(p.window[:0], p.window[1:]...)
	}
	p.window = append(p.window, appended{b.sequence, last, base})
	p.lastTime = b.time
	l.producers[b.producerID] = p
	l.end += int64(b.count)
	return base, false, nil
}

// next is sequence arithmetic: after 2^31-1 comes 0.
func next(sequence, n int32) int32 { return int32((int64(sequence) + int64(n)) & math.MaxInt32) }

func (l *log) active() []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	var all []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for id, p := range l.producers {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch = id, int32(p.epoch)
		a.LastSequence, a.LastTimestamp = p.window[len(p.window)-1].last, p.lastTime
		a.CurrentTxnStartOffset = -1
		all = append(all, a)
	}
	return all
}

// seal writes the CRC that b's bytes call for.
func seal(b []byte) { binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli)) }
