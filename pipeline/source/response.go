package source

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/lane"
)

// Fetch's version steps that change the layout (FetchResponse.json).
const (
	keyFetch      = 1
	fetchSession  = 7  // KIP-227
	fetchEpoch    = 9  // current leader epoch, KIP-320
	fetchReplica  = 11 // preferred read replica, KIP-392
	fetchFlexible = 12 // also diverging epochs, KIP-595
	fetchTopicID  = 13 // KIP-516
)

// head is what a Fetch response says about itself.
type head struct {
	throttle time.Duration
	code     int16
	session  int32
}

// part is what it says about one partition. Its slices are valid until the next one.
type part struct {
	name      []byte   // of the topic, below version 13
	id        [16]byte // of the topic, from version 13
	partition int32
	code      int16
	hw        int64
	lso       int64
	logStart  int64 // -1 below version 5
	preferred int32 // the replica to read from instead, -1 for none
	aborted   []lane.AbortedTxn
	diverging *lane.Diverging
	records   []byte
}

// walker reads Fetch responses, version 4 and later, in place. It is used again to keep its slices.
type walker struct {
	reader    kbin.Reader
	part      part
	diverging lane.Diverging
}

// walk calls begin once and then f for each partition. It allocates nothing once it has grown; whatever the bytes say, it
// holds no more than they do.
func (w *walker) walk(body []byte, version int16, begin func(head) error, f func(*part) error) error {
	r := &w.reader
	*r = kbin.Reader{Src: body}
	flexible := version >= fetchFlexible
	var h head
	h.throttle = time.Duration(r.Int32()) * time.Millisecond
	if version >= fetchSession {
		h.code, h.session = r.Int16(), r.Int32()
	}
	topics := count(r, flexible)
	if !r.Ok() {
		return r.Complete()
	}
	if err := begin(h); err != nil {
		return err
	}
	p := &w.part
	for range topics {
		switch {
		case version >= fetchTopicID:
			p.id = r.Uuid()
		case flexible:
			p.name = r.Span(int(r.Uvarint()) - 1)
		default:
			p.name = r.Span(int(r.Int16()))
		}
		for range count(r, flexible) {
			if err := w.partition(r, version, flexible); err != nil {
				return err
			}
			if err := f(p); err != nil {
				return err
			}
		}
		skipTags(r, flexible)
		if !r.Ok() {
			break
		}
	}
	skipTags(r, flexible)
	return r.Complete()
}

func (w *walker) partition(r *kbin.Reader, version int16, flexible bool) error {
	p := &w.part
	p.partition, p.code = r.Int32(), r.Int16()
	p.hw, p.lso, p.logStart = r.Int64(), r.Int64(), -1
	if version >= 5 {
		p.logStart = r.Int64()
	}
	p.aborted = p.aborted[:0]
	for range count(r, flexible) {
		a := lane.AbortedTxn{ProducerID: r.Int64(), FirstOffset: r.Int64()}
		skipTags(r, flexible)
		if !r.Ok() {
			return r.Complete()
		}
		p.aborted = append(p.aborted, a)
	}
	p.preferred = -1
	if version >= fetchReplica {
		p.preferred = r.Int32()
	}
	var n int
	if flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int32())
	}
	p.records = nil
	if n > 0 {
		p.records = r.Span(n)
	}
	p.diverging = nil
	if flexible {
		w.tags(r)
	}
	if !r.Ok() {
		return fmt.Errorf("partition %d: %w", p.partition, kbin.ErrNotEnoughData)
	}
	return nil
}

// tags reads a partition's tagged fields; 0 is the diverging epoch.
func (w *walker) tags(r *kbin.Reader) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag := r.Uvarint()
		field := r.Span(int(r.Uvarint()))
		if tag == 0 && len(field) >= 12 {
			d := kbin.Reader{Src: field}
			w.diverging = lane.Diverging{Epoch: d.Int32(), EndOffset: d.Int64()}
			w.part.diverging = &w.diverging
		}
	}
}

// count reads an array's length; null counts as none. Every element takes at least a byte, so it is bounded by the body.
func count(r *kbin.Reader, flexible bool) int {
	if flexible {
		return int(max(r.CompactArrayLen(), 0))
	}
	return int(max(r.ArrayLen(), 0))
}

func skipTags(r *kbin.Reader, flexible bool) {
	if flexible {
		kmsg.SkipTags(r)
	}
}
