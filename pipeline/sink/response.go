package sink

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
)

// answer is what a Produce response says about one partition.
type answer struct {
	name      []byte   // of the topic, below version 13
	id        [16]byte // of the topic, from version 13
	partition int32
	code      int16
	base      int64
	message   string
}

// walk calls f for every partition of a Produce response (version 3 and later) and returns the throttle time. It
// allocates nothing but messages: an answer goes by value, for by pointer it would escape. Its name is f's for the call.
func walk(body []byte, version int16, f func(answer)) (throttle time.Duration, err error) {
	r := kbin.Reader{Src: body}
	flexible := version >= produceFlexible
	var a answer
	for range count(&r, flexible) {
		switch {
		case version >= produceTopicID:
			a.id = r.Uuid()
		case flexible:
			a.name = r.Span(int(r.Uvarint()) - 1)
		default:
			a.name = r.Span(int(r.Int16()))
		}
		for range count(&r, flexible) {
			a.partition, a.code, a.base = r.Int32(), r.Int16(), r.Int64()
			a.message = ""
			r.Int64() // log append time
			if version >= 5 {
				r.Int64() // log start offset
			}
			if version >= produceErrors {
				for range count(&r, flexible) {
					index := r.Int32()
					m := nullable(&r, flexible)
					if len(m) > 0 && a.message == "" {
						a.message = fmt.Sprintf("record %d: %s", index, bounded(m))
					}
					tags(&r, flexible)
				}
				if m := nullable(&r, flexible); len(m) > 0 {
					if a.message != "" {
						a.message += "; "
					}
					a.message += bounded(m)
				}
			}
			tags(&r, flexible)
			if !r.Ok() {
				return 0, r.Complete()
			}
			f(a)
		}
		tags(&r, flexible)
		if !r.Ok() {
			break
		}
	}
	throttle = time.Duration(r.Int32()) * time.Millisecond
	tags(&r, flexible)
	return throttle, r.Complete()
}

// bounded keeps a broker's message to a length for a log line.
func bounded(m []byte) string {
	const most = 500
	if len(m) > most {
		return string(m[:most]) + "…"
	}
	return string(m)
}

// count reads an array's length; null and nonsense count as none, the reader knows of nonsense. Every element takes at
// least one byte, so it is never more than what is left.
func count(r *kbin.Reader, flexible bool) int {
	if flexible {
		return int(max(r.CompactArrayLen(), 0))
	}
	return int(max(r.ArrayLen(), 0))
}

func nullable(r *kbin.Reader, flexible bool) []byte {
	var n int
	if flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int16())
	}
	if n < 0 {
		return nil
	}
	return r.Span(n)
}

// tags skips a section of tagged fields, as kmsg.SkipTags does: through its interface the reader would escape.
func tags(r *kbin.Reader, flexible bool) {
	if !flexible {
		return
	}
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint() // key
		r.Span(int(r.Uvarint()))
	}
}
