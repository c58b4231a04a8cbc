package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	lane0 = LaneKey{Link: "east.west", Topic: "orders", TopicID: [16]byte{1, 2, 3}, Partition: 7}
	at    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cp0   = Checkpoint{SrcNext: 1 << 60, SeqNext: 9, DstNext: 12, PID: 4000, Epoch: 3, LeaderEpoch: 5, Clean: true, At: at}
)

// memory is a store without a cluster, for what needs none.
func memory() *Store {
	return &Store{
		opts: Options{ClusterID: "cid"}, topic: "kferry-state.east.internal",
		aliases: map[string]string{}, links: map[string]Link{}, producers: map[producer]int64{},
		starts: map[LaneKey]Start{}, checkpoints: map[LaneKey]Checkpoint{}, marks: map[LaneKey]mark{},
	}
}

// The text of every kind is a format: older topics have to stay readable.
func TestRecordText(t *testing.T) {
	s := memory()
	residue := int32(2)
	f := func(r *kgo.Record, partition int32, key, value string) {
		t.Helper()
		if r.Partition != partition || string(r.Key) != key || string(r.Value) != value {
			t.Errorf("got  %d %s %s\nwant %d %s %s", r.Partition, r.Key, r.Value, partition, key, value)
		}
	}
	f(s.record(recordKey{Kind: kindCluster, Cluster: "cid"}, clusterValue{Alias: "east"}), 0,
		`{"kind":"cluster","cluster":"cid"}`, `{"v":1,"alias":"east"}`)
	f(s.record(recordKey{Kind: kindLink, Link: "east.west", Cluster: "cid"}, Link{FirstStart: at, Include: []string{"o.*"}, Naming: "prefix", Start: "earliest"}), 0,
		`{"kind":"link","link":"east.west","cluster":"cid"}`, `{"v":1,"first_start":"2026-03-01T12:00:00Z","include":["o.*"],"naming":"prefix","start":"earliest"}`)
	f(s.record(recordKey{Kind: kindProducer, Link: "east.west", Cluster: "cid", Residue: &residue}, producerValue{PID: 0}), 0,
		`{"kind":"producer","link":"east.west","cluster":"cid","residue":2}`, `{"v":1,"pid":0}`)
	f(s.record(laneRecordKey(kindStart, "cid", lane0), Start{SrcStart: 4, DstStart: 0, How: "earliest", At: at}), Shard("orders", 7),
		`{"kind":"start","link":"east.west","cluster":"cid","topic":"orders","topic_id":"AQIDAAAAAAAAAAAAAAAAAA","partition":7}`,
		`{"v":1,"src_start":4,"dst_start":0,"how":"earliest","at":"2026-03-01T12:00:00Z"}`)
	f(s.checkpointRecord(lane0, cp0), Shard("orders", 7),
		`{"kind":"checkpoint","link":"east.west","cluster":"cid","topic":"orders","topic_id":"AQIDAAAAAAAAAAAAAAAAAA","partition":7,"epoch":3}`,
		`{"v":1,"src_next":1152921504606846976,"seq_next":9,"dst_next":12,"pid":4000,"leader_epoch":5,"clean":true,"at":"2026-03-01T12:00:00Z"}`)
	f(s.tombstone(LaneKey{Link: "l", Topic: "t"}, 0), Shard("t", 0),
		`{"kind":"checkpoint","link":"l","cluster":"cid","topic":"t","partition":0,"epoch":0}`, "")
}

func TestLoadRefusesWhatItCannotRead(t *testing.T) {
	const key = `{"kind":"checkpoint","link":"l","cluster":"cid","topic":"t","partition":0,"epoch":1}`
	const value = `{"v":1,"src_next":1,"seq_next":1,"dst_next":1,"pid":1,"clean":false}`
	f := func(key, value string, want error, text string) {
		t.Helper()
		err := memory().load(&kgo.Record{Key: []byte(key), Value: []byte(value)})
		if !errors.Is(err, want) || (err != nil && !strings.Contains(err.Error(), text)) {
			t.Errorf("load %s %s: %v, want %v with %q", key, value, err, want, text)
		}
	}
	f(key, value, nil, "")
	f(key, strings.Replace(value, `"v":1`, `"v":2`, 1), ErrVersion, "version 2, this one knows 1: run the newer kferry")
	f(key, strings.Replace(value, `"v":1,`, ``, 1), ErrRecord, "value without a version")
	f(key, strings.Replace(value, `"src_next":1,`, ``, 1), ErrRecord, "value without src_next")
	f(key, strings.Replace(value, `"pid":1`, `"pid":null`, 1), ErrRecord, "value without pid")
	f(key, strings.Replace(value, `"src_next":1`, `"src_next":-1`, 1), ErrRecord, "checkpoint src_next=-1")
	f(key, strings.Replace(value, `"src_next":1`, `"src_next":"x"`, 1), ErrRecord, "value: json")
	f(key, ``, ErrRecord, "value: unexpected end of JSON input")
	f(`orders/0`, value, ErrRecord, "key: invalid character")
	f(`{"link":"l"}`, value, ErrRecord, "key without a kind")
	f(strings.Replace(key, `,"epoch":1`, ``, 1), value, ErrRecord, "a checkpoint without an epoch")
	f(strings.Replace(key, `"epoch":1`, `"epoch":-1`, 1), value, ErrRecord, "epoch=-1")
	f(strings.Replace(key, `,"partition":0`, ``, 1), value, ErrRecord, "needs link, topic and partition")
	f(strings.Replace(key, `"topic":"t"`, `"topic":"t","topic_id":"AQ"`, 1), value, ErrRecord, `topic id "AQ"`)
	f(`{"kind":"producer","link":"l","cluster":"cid"}`, `{"v":1,"pid":1}`, ErrRecord, "a producer without a residue")
	f(`{"kind":"producer","link":"l","cluster":"cid","residue":0}`, `{"v":1,"pid":-1}`, ErrRecord, "producer id -1")
	f(`{"kind":"start","link":"l","cluster":"cid","topic":"t","partition":0}`, `{"v":1,"src_start":-2,"dst_start":0}`, ErrRecord, "start at -2, 0")
	f(`{"kind":"cluster","cluster":"cid"}`, `{"v":1}`, ErrRecord, "value without alias")

	// What a newer kferry may add, and what is another source's.
	f(`{"kind":"ledger","partition":"all"}`, `{"v":9}`, nil, "")
	f(strings.Replace(key, `"epoch":1`, `"epoch":1,"more":true`, 1), strings.Replace(value, `"v":1`, `"v":1,"more":[1]`, 1), nil, "")
	f(strings.Replace(key, `"cid"`, `"other"`, 1), `not even JSON`, nil, "")
}

// A zombie of an older epoch never counts; of one epoch the later record does.
func TestHighestEpochWinsThenLaterRecord(t *testing.T) {
	s := memory()
	load := func(r *kgo.Record) {
		t.Helper()
		if err := s.load(r); err != nil {
			t.Fatal(err)
		}
	}
	put := func(epoch int16, src int64) { load(s.checkpointRecord(lane0, Checkpoint{SrcNext: src, Epoch: epoch})) }
	want := func(epoch int16, src int64) {
		t.Helper()
		got, ok := s.Checkpoint(lane0)
		if !ok || got.Epoch != epoch || got.SrcNext != src {
			t.Fatalf("checkpoint %+v, %v; want epoch %d at %d", got, ok, epoch, src)
		}
	}
	put(1, 100)
	put(1, 50)
	want(1, 50)
	put(2, 40)
	want(2, 40)
	put(1, 900)
	want(2, 40)
	load(s.tombstone(lane0, 1))
	want(2, 40)
	load(s.tombstone(lane0, 2))
	if _, ok := s.Checkpoint(lane0); ok {
		t.Fatal("a deleted checkpoint is still there")
	}
}

func TestLookUpFallsBackToNameWithoutID(t *testing.T) {
	s := memory()
	bare := lane0
	bare.TopicID = [16]byte{}
	s.checkpoints[bare] = Checkpoint{SrcNext: 1}
	if got, ok := s.Checkpoint(lane0); !ok || got.SrcNext != 1 {
		t.Fatalf("checkpoint of an upgraded source: %+v, %v", got, ok)
	}
	s.checkpoints[lane0] = Checkpoint{SrcNext: 2}
	if got, _ := s.Checkpoint(lane0); got.SrcNext != 2 {
		t.Fatalf("the id's own checkpoint has to win, got %+v", got)
	}
	other := lane0
	other.TopicID = [16]byte{9}
	delete(s.checkpoints, bare)
	if got, ok := s.Checkpoint(other); ok {
		t.Fatalf("a recreated topic found the old one's checkpoint %+v", got)
	}
}

// A position that was taken just before its lane stored a new epoch comes late and must not count.
func TestMarkOfAnOlderEpochIsOldNews(t *testing.T) {
	s := memory()
	s.checkpoints[lane0] = cp0
	s.Mark(lane0, Checkpoint{Epoch: cp0.Epoch - 1})
	if !s.OldestMark().IsZero() {
		t.Fatal("it waits to be written")
	}
}

func TestUnreadableIsNeverWritten(t *testing.T) {
	f := func(v any, want string) {
		t.Helper()
		defer func() {
			t.Helper()
			if got := recover(); got != want {
				t.Errorf("recovered %v, want %q", got, want)
			}
		}()
		encodeValue(v)
	}
	f(Checkpoint{Epoch: -1}, "BUG: write of a damaged state record: checkpoint src_next=0 seq_next=0 dst_next=0 pid=0 epoch=-1")
	f(Start{SrcStart: -1}, "BUG: write of a damaged state record: start at -1, 0")
	f(producerValue{PID: -1}, "BUG: write of a damaged state record: producer id -1")
}

// Whatever loads has to come out the same when it is written and loaded again.
func FuzzLoad(f *testing.F) {
	s := memory()
	residue := int32(0)
	for _, r := range []*kgo.Record{
		s.checkpointRecord(lane0, cp0), s.tombstone(lane0, 1),
		s.record(laneRecordKey(kindStart, "cid", lane0), Start{How: "zero", At: at}),
		s.record(recordKey{Kind: kindProducer, Link: "l", Cluster: "cid", Residue: &residue}, producerValue{PID: 1}),
		s.record(recordKey{Kind: kindLink, Link: "l", Cluster: "cid"}, Link{FirstStart: at}),
		s.record(recordKey{Kind: kindCluster, Cluster: "cid"}, clusterValue{Alias: "east"}),
	} {
		f.Add(r.Key, r.Value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s := memory()
		if err := s.load(&kgo.Record{Key: key, Value: value}); err != nil {
			if !errors.Is(err, ErrRecord) && !errors.Is(err, ErrVersion) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		again := memory()
		for lane, cp := range s.checkpoints {
			r := s.checkpointRecord(lane, cp)
			if !json.Valid(r.Key) || !json.Valid(r.Value) || bytes.Contains(r.Value, []byte("\n")) {
				t.Fatalf("wrote %q %q", r.Key, r.Value)
			}
			if err := again.load(r); err != nil {
				t.Fatalf("load what was written: %v", err)
			}
		}
		for lane, st := range s.starts {
			if err := again.load(s.record(laneRecordKey(kindStart, "cid", lane), st)); err != nil {
				t.Fatalf("load what was written: %v", err)
			}
		}
		if d := cmp.Diff(s.checkpoints, again.checkpoints) + cmp.Diff(s.starts, again.starts); d != "" {
			t.Fatal(d)
		}
	})
}
