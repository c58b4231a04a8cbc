package source

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/lane"
)

// The first and the last version of Fetch that we speak.
const (
	firstFetch = 4
	lastFetch  = 18
)

// response is one of everything that an answer to Fetch can hold.
func response(version int16) *kmsg.FetchResponse {
	r := kmsg.NewPtrFetchResponse()
	r.Version, r.ThrottleMillis, r.SessionID = version, 321, 99
	for i, name := range []string{"orders", "empty", "audit"} {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic, topic.TopicID = name, [16]byte{byte(i + 1)}
		for j := range []int{3, 0, 4}[i] {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = int32(j), int16(j-1)
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = int64(j)<<40, int64(j)<<39, int64(j)
			p.PreferredReadReplica = 5
			switch j {
			case 0:
				p.RecordBatches = []byte("opaque to the walk")
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 9, FirstOffset: 3}, {ProducerID: 8, FirstOffset: 1}}
			case 1: // null records, null list
			case 2:
				p.RecordBatches = []byte{}
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 6, 51
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 2, 7
			case 3:
				p.SnapshotID.EndOffset, p.SnapshotID.Epoch = 4, 4
				p.UnknownTags.Set(200, []byte("of a later version"))
				p.RecordBatches = []byte{1}
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		topic.UnknownTags.Set(1, []byte{1})
		r.Topics = append(r.Topics, topic)
	}
	r.Brokers = []kmsg.FetchResponseBroker{{NodeID: 3, Host: "h", Port: 1}}
	return r
}

// told is a part that outlives the call.
type told struct {
	name      string
	id        [16]byte
	partition int32
	code      int16
	offsets   [3]int64
	aborted   []lane.AbortedTxn
	diverging lane.Diverging
	diverges  bool
	records   string
}

func read(body []byte, version int16) (h head, all []told, err error) {
	var w walker
	err = w.walk(body, version, func(got head) error { h = got; return nil }, func(p *part) error {
		x := told{name: string(p.name), id: p.id, partition: p.partition, code: p.code, offsets: [3]int64{p.hw, p.lso, p.logStart},
			aborted: slices.Clone(p.aborted), records: string(p.records)}
		if p.diverging != nil {
			x.diverging, x.diverges = *p.diverging, true
		}
		if len(x.aborted) == 0 {
			x.aborted = nil
		}
		all = append(all, x)
		return nil
	})
	return h, all, err
}

// expected says the same by way of kmsg.
func expected(r *kmsg.FetchResponse) (h head, all []told) {
	h = head{throttle: time.Duration(r.ThrottleMillis) * time.Millisecond}
	if r.Version >= fetchSession {
		h.code, h.session = r.ErrorCode, r.SessionID
	}
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			x := told{partition: p.Partition, code: p.ErrorCode, offsets: [3]int64{p.HighWatermark, p.LastStableOffset, p.LogStartOffset}, records: string(p.RecordBatches)}
			if r.Version < 5 {
				x.offsets[2] = -1
			}
			if r.Version >= fetchTopicID {
				x.id = topic.TopicID
			} else {
				x.name = topic.Topic
			}
			for _, a := range p.AbortedTransactions {
				x.aborted = append(x.aborted, lane.AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
			}
			if d := p.DivergingEpoch; r.Version >= fetchFlexible && (d.Epoch != -1 || d.EndOffset != -1) {
				x.diverging, x.diverges = lane.Diverging{Epoch: d.Epoch, EndOffset: d.EndOffset}, true
			}
			all = append(all, x)
		}
	}
	return h, all
}

func TestResponseAgainstKmsg(t *testing.T) {
	for version := int16(firstFetch); version <= lastFetch; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			r := response(version)
			body := r.AppendTo(nil)
			h, got, err := read(body, version)
			if err != nil {
				t.Fatal(err)
			}
			wantHead, want := expected(r)
			if h != wantHead || !reflect.DeepEqual(got, want) {
				t.Fatalf("got  %+v %+v\nwant %+v %+v", h, got, wantHead, want)
			}
			for n := range body {
				_, cut, err := read(body[:n:n], version)
				if !errors.Is(err, kbin.ErrNotEnoughData) {
					t.Fatalf("%d of %d bytes: %v", n, len(body), err)
				}
				if len(cut) > len(got) || len(cut) > 0 && !reflect.DeepEqual(cut, got[:len(cut)]) {
					t.Fatalf("%d of %d bytes tell %+v", n, len(body), cut)
				}
			}
			var w walker
			begin, each := func(head) error { return nil }, func(*part) error { return nil }
			if n := testing.AllocsPerRun(50, func() { w.walk(body, version, begin, each) }); n != 0 {
				t.Errorf("%v allocations per response", n)
			}
		})
	}
}

// The callbacks' errors end the walk and come out as they are.
func TestResponseStops(t *testing.T) {
	body := response(lastFetch).AppendTo(nil)
	stop := errors.New("enough")
	var w walker
	calls := 0
	err := w.walk(body, lastFetch, func(head) error { return stop }, func(*part) error { calls++; return nil })
	if err != stop || calls != 0 {
		t.Fatalf("%v after %d parts", err, calls)
	}
	err = w.walk(body, lastFetch, func(head) error { return nil }, func(*part) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Fatalf("%v after %d parts", err, calls)
	}
}

// What kmsg reads, we read to the same end; whatever else comes is an error, soon, and holds no more than its bytes say.
func FuzzResponse(f *testing.F) {
	for version := int16(firstFetch); version <= lastFetch; version++ {
		f.Add(response(version).AppendTo(nil), version)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < firstFetch || version > lastFetch {
			return
		}
		h, got, err := read(body, version)
		for _, p := range got {
			if 16*len(p.aborted)+len(p.records) > len(body) {
				t.Fatalf("%d bytes give %d aborted transactions and %d bytes of records", len(body), len(p.aborted), len(p.records))
			}
		}
		r := kmsg.NewPtrFetchResponse()
		r.Version = version
		if r.ReadFrom(body) != nil {
			return
		}
		if err != nil {
			t.Fatalf("kmsg reads it, we say %v", err)
		}
		wantHead, want := expected(r)
		for i := range want { // kmsg does not tell a field that says -1 -1 from none
			if i < len(got) && got[i].diverging == (lane.Diverging{Epoch: -1, EndOffset: -1}) {
				got[i].diverging, got[i].diverges = lane.Diverging{}, false
			}
		}
		if h != wantHead || !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v %+v\nwant %+v %+v", h, got, wantHead, want)
		}
	})
}
