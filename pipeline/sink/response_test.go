package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func ptr[T any](v T) *T { return &v }

// response is one of everything that an answer to Produce can hold.
func response(version int16) *kmsg.ProduceResponse {
	r := kmsg.NewPtrProduceResponse()
	r.Version, r.ThrottleMillis = version, 1234
	for i, name := range []string{"orders", "", strings.Repeat("x", 200)} {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = name, [16]byte{byte(i + 1)}
		for j := range i * 3 {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode, p.BaseOffset = int32(j), int16(j*30), int64(j)<<40-1
			p.LogAppendTime, p.LogStartOffset = 55, 66
			if j%3 == 1 {
				p.ErrorMessage = ptr("not taken")
			}
			if j%3 == 2 {
				p.ErrorMessage = ptr(strings.Repeat("m", 600))
				p.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 7}, {RelativeOffset: 8, ErrorMessage: ptr("no key")}, {RelativeOffset: 9, ErrorMessage: ptr("never")}}
				p.CurrentLeader = kmsg.ProduceResponseTopicPartitionCurrentLeader{LeaderID: 4, LeaderEpoch: 5}
			}
			p.UnknownTags.Set(77, []byte("of a later version"))
			topic.Partitions = append(topic.Partitions, p)
		}
		topic.UnknownTags.Set(78, nil)
		r.Topics = append(r.Topics, topic)
	}
	r.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 1, Host: "h", Port: 2}}
	return r
}

// told is an answer that outlives the call.
type told struct {
	name      string
	id        [16]byte
	partition int32
	code      int16
	base      int64
	message   string
}

func read(body []byte, version int16) (all []told, throttle time.Duration, err error) {
	throttle, err = walk(body, version, func(a answer) {
		all = append(all, told{string(a.name), a.id, a.partition, a.code, a.base, a.message})
	})
	return all, throttle, err
}

// expected says the same by way of kmsg.
func expected(r *kmsg.ProduceResponse) (all []told) {
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			a := told{partition: p.Partition, code: p.ErrorCode, base: p.BaseOffset}
			if r.Version >= produceTopicID {
				a.id = topic.TopicID
			} else {
				a.name = topic.Topic
			}
			var words []string
			for _, e := range p.ErrorRecords {
				if e.ErrorMessage != nil && *e.ErrorMessage != "" {
					words = append(words, fmt.Sprintf("record %d: %s", e.RelativeOffset, *e.ErrorMessage))
					break
				}
			}
			if m := p.ErrorMessage; m != nil && *m != "" {
				text := *m
				if len(text) > 500 {
					text = text[:500] + "…"
				}
				words = append(words, text)
			}
			if r.Version >= produceErrors {
				a.message = strings.Join(words, "; ")
			}
			all = append(all, a)
		}
	}
	return all
}

func TestResponseAgainstKmsg(t *testing.T) {
	for version := int16(firstProduce); version <= lastProduce; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			r := response(version)
			body := r.AppendTo(nil)
			got, throttle, err := read(body, version)
			if err != nil || throttle != 1234*time.Millisecond {
				t.Fatalf("throttle %v, %v", throttle, err)
			}
			if want := expected(r); !slices.Equal(got, want) {
				t.Fatalf("got\n%+v\nwant\n%+v", got, want)
			}
			for n := range body {
				cut, _, err := read(body[:n:n], version)
				if !errors.Is(err, kbin.ErrNotEnoughData) {
					t.Fatalf("%d of %d bytes: %v", n, len(body), err)
				}
				if len(cut) > len(got) || !slices.Equal(cut, got[:len(cut)]) {
					t.Fatalf("%d of %d bytes tell %+v", n, len(body), cut)
				}
			}
		})
	}
}

// An answer costs no memory as long as the broker has nothing to say in words.
func TestResponseAllocatesNothing(t *testing.T) {
	for version := int16(firstProduce); version <= lastProduce; version++ {
		r := response(version)
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				r.Topics[i].Partitions[j].ErrorMessage, r.Topics[i].Partitions[j].ErrorRecords = nil, nil
			}
		}
		body := r.AppendTo(nil)
		var sum int64
		if n := testing.AllocsPerRun(50, func() {
			if _, err := walk(body, version, func(a answer) { sum += a.base + int64(len(a.name)) }); err != nil {
				t.Error(err)
			}
		}); n != 0 || sum == 0 {
			t.Errorf("v%d: %v allocations, offsets and names add up to %d", version, n, sum)
		}
	}
}

// What kmsg reads, we read to the same end; whatever else comes is an error, soon.
func FuzzResponse(f *testing.F) {
	for version := int16(firstProduce); version <= lastProduce; version++ {
		f.Add(response(version).AppendTo(nil), version)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < firstProduce || version > lastProduce {
			return
		}
		got, throttle, err := read(body, version)
		r := kmsg.NewPtrProduceResponse()
		r.Version = version
		if r.ReadFrom(body) != nil {
			return
		}
		if err != nil {
			t.Fatalf("kmsg reads it, we say %v", err)
		}
		if want := expected(r); !slices.Equal(got, want) || throttle != time.Duration(r.ThrottleMillis)*time.Millisecond {
			t.Fatalf("got %v %+v, want %+v", throttle, got, want)
		}
	})
}
