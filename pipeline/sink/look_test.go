package sink

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"kferry/batch"
	"kferry/pipeline/lane"
)

const (
	keyListOffsets       = 2
	keyDescribeProducers = 61
)

// observe counts the requests of one API.
func (r *rig) observe(key int16) *atomic.Int32 {
	n := new(atomic.Int32)
	r.fake.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
	return n
}

// fill writes n batches of a producer and waits for them.
func (r *rig) fill(t *testing.T, partition int32, es []*lane.Entry) {
	t.Helper()
	a := newAnswers()
	s := r.open(t, "orders", partition, a.to)
	for i := range es {
		s.Send(es[i : i+1])
		a.wait(t, i+1)
	}
	check(t, a.wait(t, len(es)), es, lane.Acked)
	s.Close()
}

// Questions of many lanes go out in few requests. The fake's brokers keep no producer states that they would tell.
func TestLookShares(t *testing.T) {
	r := start(t, options(), kfake.NumBrokers(2), kfake.SeedTopics(60, "wide"))
	r.fill(t, 3, entries(t, 1, 3, 10)) // 6 records
	ends, producers := r.observe(keyListOffsets), r.observe(keyDescribeProducers)
	var wg sync.WaitGroup
	for p := range int32(68) {
		wg.Go(func() {
			topic, partition, want := "wide", p-8, int64(0)
			if p < 8 {
				topic, partition = "orders", p
			}
			if p == 3 {
				want = 6
			}
			got, err := r.sink.Partition(topic, partition).Look(within(t), batch.Identity{ProducerID: 1}, lane.Position{}, false)
			if err != nil || got != (lane.LookResult{End: want, Epoch: -1, Last: -1}) {
				t.Errorf("%s/%d: %+v, %v", topic, partition, got, err)
			}
		})
	}
	wg.Wait()
	if e, p := ends.Load(), producers.Load(); e != 2*p || p > 20 {
		t.Errorf("%d ListOffsets and %d DescribeProducers for 68 questions", e, p)
	}
}

// A producer's state counts only for its own epoch; a newer one is told.
func TestLookKnown(t *testing.T) {
	r := start(t, options())
	r.fake.ControlKey(keyDescribeProducers, func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, topic := range req.(*kmsg.DescribeProducersRequest).Topics {
			rt := kmsg.NewDescribeProducersResponseTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				rp.Partition = p
				switch p {
				case 0, 1:
					rp.ActiveProducers = []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
						{ProducerID: 8, ProducerEpoch: 1, LastSequence: 3}, {ProducerID: 9, ProducerEpoch: 2 + p, LastSequence: 77}}
				case 2:
					rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
				case 3:
					continue // left out
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	look := func(p int32) (lane.LookResult, error) {
		return r.sink.Partition("orders", p).Look(within(t), batch.Identity{ProducerID: 9, Epoch: 2}, lane.Position{}, false)
	}
	if got, err := look(0); err != nil || got != (lane.LookResult{Known: true, Epoch: 2, Last: 77}) {
		t.Errorf("our epoch: %+v, %v", got, err)
	}
	if got, err := look(1); err != nil || got != (lane.LookResult{Epoch: 3, Last: -1}) {
		t.Errorf("a newer epoch: %+v, %v", got, err)
	}
	if _, err := look(2); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("without permission: %v", err)
	}
	if _, err := look(3); err == nil {
		t.Error("an answer that was left out is taken for one")
	}
	if _, err := look(99); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a partition that does not exist: %v", err)
	}
}

// Only the leader of the epoch that we know answers: after a move the first look-up fails, and has the metadata refreshed.
func TestLookAsksTheLeader(t *testing.T) {
	r := start(t, options(), kfake.NumBrokers(2))
	p, _ := r.cluster.Topology().Leader("orders", 0)
	if err := r.fake.MoveTopicPartition("orders", 0, 1-p.Leader); err != nil {
		t.Fatal(err)
	}
	look := func() error {
		_, err := r.sink.Partition("orders", 0).Look(within(t), batch.Identity{ProducerID: 1}, lane.Position{}, false)
		return err
	}
	if err := look(); !errors.Is(err, kerr.NotLeaderForPartition) && !errors.Is(err, kerr.FencedLeaderEpoch) {
		t.Fatalf("the old leader says %v", err)
	}
	eventually(t, "an answer of the new leader", func() bool { return look() == nil })
}

// Before Kafka 2.8 there is no DescribeProducers: the end has to do.
func TestLookAtAnOldBroker(t *testing.T) {
	r := start(t, options(), kfake.MaxVersions(kversion.V2_7_0()))
	r.fill(t, 0, entries(t, 1, 3, 10))
	got, err := r.sink.Partition("orders", 0).Look(within(t), batch.Identity{ProducerID: 1}, lane.Position{}, false)
	if err != nil || got != (lane.LookResult{End: 6, Epoch: -1, Last: -1}) {
		t.Fatalf("%+v, %v", got, err)
	}
}

// Where others write too, the log tells what is ours.
func TestLookScans(t *testing.T) {
	for _, versions := range []*kversion.Versions{kversion.Stable(), kversion.V2_7_0()} {
		r := start(t, options(), kfake.MaxVersions(versions))
		ours, theirs := entries(t, 1, 9, 600_000), entries(t, 2, 9, 600_000) // more than one fetch brings
		var all []*lane.Entry
		for i := range ours {
			all = append(all, ours[i], theirs[i])
		}
		all = slices.Insert(all, len(all), entries(t, 2, 12, 10)[9:]...)
		r.fill(t, 0, all)
		target := r.sink.Partition("orders", 0)
		id := batch.Identity{ProducerID: 1}
		for _, from := range []struct {
			at      lane.Position
			written int64
		}{{lane.Position{}, 18}, {lane.Position{Dst: 12, Seq: 6}, 12}, {lane.Position{Dst: 36, Seq: 18}, 0}, {lane.Position{Dst: 42, Seq: 18}, 0}} {
			got, err := target.Look(within(t), id, from.at, true)
			want := lane.LookResult{End: 42, Epoch: -1, Last: -1, Scanned: true, Written: from.written, NextDst: 33} // 15 and 15 records before our last batch, and its 3
			if from.written == 0 {
				want.NextDst = from.at.Dst
			}
			if err != nil || got != want {
				t.Errorf("from %+v: %+v, want %+v, %v", from.at, got, want, err)
			}
		}
		id.Epoch = 1
		if got, err := target.Look(within(t), id, lane.Position{}, true); err != nil || got.Written != 0 || got.NextDst != 0 {
			t.Errorf("another epoch: %+v, %v", got, err)
		}
		if _, err := target.Look(within(t), id, lane.Position{Dst: 40}, true); err != nil {
			t.Errorf("from inside a batch: %v", err)
		}
	}
}

// What retention took of the target is not looked for; the sequences of what is left tell how much was written.
func TestLookScansBehindRetention(t *testing.T) {
	r := start(t, options())
	r.fill(t, 0, entries(t, 1, 6, 10)) // 12 records
	var gone kadm.Offsets
	gone.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 6})
	if _, err := r.cluster.Admin().DeleteRecords(within(t), gone); err != nil {
		t.Fatal(err)
	}
	got, err := r.sink.Partition("orders", 0).Look(within(t), batch.Identity{ProducerID: 1}, lane.Position{Dst: 1, Seq: 1}, true)
	if want := (lane.LookResult{End: 12, Epoch: -1, Last: -1, Scanned: true, Written: 11, NextDst: 12}); err != nil || got != want {
		t.Fatalf("%+v, want %+v, %v", got, want, err)
	}
	if _, err := r.sink.Partition("orders", 0).Look(within(t), batch.Identity{ProducerID: 1}, lane.Position{Dst: 11, Seq: 11}, true); err != nil {
		t.Errorf("from what is left: %v", err)
	}
}
