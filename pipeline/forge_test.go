package pipeline

import (
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/state"
)

// forgery is a copy of topic "t" that the test makes in kferry's place.
type forgery struct {
	*twins
	cfg    Config
	link   *Link
	source []batch.Batch
	pid    int64
	seq    int32
	epoch  int16
	end    int64
}

func forge(t *testing.T, n int, opts ...kgo.Opt) *forgery {
	p := newTwins(t)
	p.topic(p.east, "t", 1)
	p.topic(p.west, "east.t", 1)
	p.batches(p.east, "t", n, opts...)
	f := &forgery{twins: p, cfg: p.config(DefaultLink("east", "west"))}
	pl := p.pipeline(f.cfg, Options{})
	t.Cleanup(pl.Close)
	f.link = pl.links[0]
	if err := f.link.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.source = f.read("t", n)
	var err error
	if f.pid, err = newProducerID(t.Context(), f.link.to); err != nil {
		t.Fatal(err)
	}
	return f
}

// read gives the n batches of a source topic.
func (f *forgery) read(topic string, n int) (batches []batch.Batch) {
	f.Helper()
	if err := f.link.from.Refresh(f.Context()); err != nil {
		f.Fatal(err)
	}
	c := logCursor{cluster: f.link.from, topic: topic, end: int64(10 * n)}
	c.seek(0)
	for {
		x, ok, err := c.head(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		if !ok {
			break
		}
		batches = append(batches, x.Batch)
		c.pop()
	}
	if len(batches) != n {
		f.Fatalf("got %d batches, want %d", len(batches), n)
	}
	return batches
}

// write appends the copy of a source batch to the target.
func (f *forgery) write(b batch.Batch) {
	f.Helper()
	var h batch.Header
	batch.Patch(&h, b, batch.Identity{ProducerID: f.pid, Epoch: f.epoch, Sequence: f.seq})
	f.seq += b.Count()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = "east.t", f.link.to.Topology().Topics["east.t"].ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = slices.Concat(h[:], b.Payload())
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	cl, err := f.link.to.NewClient(kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		f.Fatal(err)
	}
	defer cl.Close()
	leader, _ := f.link.to.Topology().Leader("east.t", 0)
	resp, err := cl.Broker(int(leader.Leader)).Request(f.Context(), req)
	if err != nil {
		f.Fatal(err)
	}
	got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		f.Fatal(err)
	}
	f.end = got.BaseOffset + int64(b.Count())
}

// store leaves the state of a link that copied all of the source and stopped.
func (f *forgery) store(clean bool) {
	f.Helper()
	id, err := f.link.from.ID(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	s, err := state.Open(f.Context(), state.Options{NewClient: f.link.to.NewClient, Alias: "east", ClusterID: id, Log: slog.New(slog.NewTextHandler(testLog{f}, nil))})
	if err != nil {
		f.Fatal(err)
	}
	defer s.Close()
	key := state.LaneKey{Link: "east.west", Topic: "t", TopicID: f.link.from.Topology().Topics["t"].ID}
	last := f.source[len(f.source)-1]
	for _, err := range []error{
		s.PutLink(f.Context(), "east.west", state.Link{FirstStart: time.Now(), Naming: "prefix", Start: "earliest"}),
		s.PutProducer(f.Context(), "east.west", 0, f.pid),
		s.PutStarts(f.Context(), map[state.LaneKey]state.Start{key: {How: "earliest"}}),
		s.PutCheckpoints(f.Context(), map[state.LaneKey]state.Checkpoint{key: {SrcNext: last.NextOffset(), DstNext: f.end, SeqNext: f.seq,
			PID: f.pid, Epoch: f.epoch, Clean: clean}}),
	} {
		if err != nil {
			f.Fatal(err)
		}
	}
}

// changed gives a batch with other records, at the same place and with a right checksum.
func (f *forgery) changed(b batch.Batch, edit func(raw []byte)) batch.Batch {
	f.Helper()
	raw := slices.Clone(b.Bytes())
	edit(raw)
	reseal(raw)
	out, tail, err := batch.Scan(nil, nil, raw)
	if err != nil || tail != 0 || len(out) != 1 {
		f.Fatalf("scan: %d batches, %d bytes behind: %v", len(out), tail, err)
	}
	return out[0]
}

// Offsets of a format 2 batch that tests change, as in package batch.
const (
	rawCRC           = 17
	rawAttributes    = 21
	rawBaseTimestamp = 27
	rawMaxTimestamp  = 35
)

// reseal gives a batch the checksum of its bytes.
func reseal(raw []byte) {
	binary.BigEndian.PutUint32(raw[rawCRC:], crc32.Checksum(raw[rawAttributes:], crc32.MakeTable(crc32.Castagnoli)))
}

func setTimes(raw []byte, base, most int64) {
	binary.BigEndian.PutUint64(raw[rawBaseTimestamp:], uint64(base))
	binary.BigEndian.PutUint64(raw[rawMaxTimestamp:], uint64(most))
}
