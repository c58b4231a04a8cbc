package sink

import (
	"encoding/binary"
	"net"
	"slices"
	"time"

	"kferry/batch"
	"kferry/pipeline/lane"
)

// keyProduce is the API key of Produce; from version 9 it is flexible (KIP-482), from 13 topics go by id (KIP-516).
const (
	keyProduce      = 0
	produceFlexible = 9
	produceTopicID  = 13
	produceErrors   = 8 // record errors and messages in the response (KIP-467)
)

// topicRef is a target topic as requests name it: by name below version 13, by id from there.
type topicRef struct {
	name string
	id   [16]byte
}

// item is one batch in a request.
type item struct {
	stream *stream
	entry  *lane.Entry
	done   bool // the response named it
}

// request builds the body of Produce requests. It is used again for the next one: nothing is allocated once it has grown.
type request struct {
	scratch []byte      // frames and headers
	bufs    net.Buffers // scratch and payloads in turn
}

// build lays out items, which it sorts by topic. The result borrows the entries' payloads and is valid until the next
// build. timeout is how long the broker may wait for its replicas.
func (r *request) build(version int16, items []item, timeout time.Duration) net.Buffers {
	slices.SortStableFunc(items, func(a, b item) int { return a.stream.topic.order(b.stream.topic) })
	// Grown once, before anything points into it.
	need := 64
	for i := range items {
		need += 32 + len(batch.Header{})
		if i == 0 || items[i].stream.topic != items[i-1].stream.topic {
			need += 64 + len(items[i].stream.topic.name)
		}
	}
	if cap(r.scratch) < need {
		r.scratch = make([]byte, 0, 2*need)
	}
	b, bufs := r.scratch[:0], r.bufs[:0]
	flexible := version >= produceFlexible

	if flexible {
		b = append(b, 0) // transactional id: null
	} else {
		b = append(b, 0xff, 0xff)
	}
	b = append(b, 0xff, 0xff) // acks: all
	b = binary.BigEndian.AppendUint32(b, uint32(timeout.Milliseconds()))
	topics := 0
	for i := range items {
		if i == 0 || items[i].stream.topic != items[i-1].stream.topic {
			topics++
		}
	}
	b = appendCount(b, topics, flexible)
	from := 0
	for i := 0; i < len(items); {
		t := items[i].stream.topic
		n := 1
		for i+n < len(items) && items[i+n].stream.topic == t {
			n++
		}
		switch {
		case version >= produceTopicID:
			b = append(b, t.id[:]...)
		case flexible:
			b = append(binary.AppendUvarint(b, uint64(len(t.name)+1)), t.name...)
		default:
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(t.name))), t.name...)
		}
		b = appendCount(b, n, flexible)
		for _, it := range items[i : i+n] {
			b = binary.BigEndian.AppendUint32(b, uint32(it.stream.partition))
			if flexible {
				b = binary.AppendUvarint(b, uint64(it.entry.Size()+1))
			} else {
				b = binary.BigEndian.AppendUint32(b, uint32(it.entry.Size()))
			}
			b = append(b, it.entry.Header[:]...)
			bufs = append(bufs, b[from:len(b):len(b)], it.entry.Batch.Payload())
			from = len(b)
			if flexible {
				b = append(b, 0) // no tagged fields of the partition
			}
		}
		if flexible {
			b = append(b, 0) // of the topic
		}
		i += n
	}
	if flexible {
		b = append(b, 0) // of the request
	}
	if from < len(b) {
		bufs = append(bufs, b[from:])
	}
	if len(b) > cap(r.scratch) {
		panic("BUG: sink: a request's frame outgrew its scratch buffer")
	}
	r.scratch, r.bufs = b, bufs
	return bufs
}

func appendCount(b []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(b, uint64(n+1))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// order sorts topics by name; two of one name differ by id.
func (t *topicRef) order(o *topicRef) int {
	switch {
	case t == o:
		return 0
	case t.name < o.name:
		return -1
	case t.name > o.name:
		return 1
	}
	return slices.Compare(t.id[:], o.id[:])
}
