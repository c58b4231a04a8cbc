package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const testTopic = "orders"

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func testSource(t *testing.T, partitions int32, batches int64) *Source {
	t.Helper()
	s, err := NewSource(testContext(t), SourceConfig{
		Topic: testTopic, Partitions: partitions, Batches: batches,
		Workload: Workload{Codec: "zstd", RecordBytes: 100, BatchBytes: 20_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func testTarget(t *testing.T, topics map[string]int32) *Target {
	t.Helper()
	target, err := NewTarget(TargetConfig{Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(target.Close)
	return target
}

func testClient(t *testing.T, addr string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(addr))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A consumer that knows nothing of us reads every record of the synthetic source, once and in order: by sessions and without,
// by topic name (v4, v11, v12) and by id, and with answers so small that batches are cut.
func TestSourceIsReadByAConsumer(t *testing.T) {
	const partitions, batches = 3, 50
	s := testSource(t, partitions, batches)
	for name, options := range map[string][]kgo.Opt{
		"newest":      nil,
		"cut":         {kgo.FetchMaxPartitionBytes(50_000), kgo.FetchMaxBytes(90_000)},
		"v4":          {kgo.MaxVersions(kversion.V1_0_0())},
		"v11":         {kgo.MaxVersions(kversion.V2_4_0())},
		"v12":         {kgo.MaxVersions(kversion.V2_7_0())},
		"no sessions": {kgo.DisableFetchSessions()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			c := testClient(t, s.Addr(), append(options, kgo.ConsumeTopics(testTopic))...)
			var next [partitions]int64
			for slices.Min(next[:]) < s.Records() {
				fetches := c.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					t.Fatal(err)
				}
				fetches.EachRecord(func(r *kgo.Record) {
					if r.Offset != next[r.Partition] || len(r.Value) != 100 {
						t.Fatalf("partition %d: offset %d of %d B, want offset %d", r.Partition, r.Offset, len(r.Value), next[r.Partition])
					}
					next[r.Partition]++
				})
			}
			ends, err := kadm.NewClient(c).ListEndOffsets(ctx, testTopic)
			if err != nil {
				t.Fatal(err)
			}
			ends.Each(func(o kadm.ListedOffset) {
				if o.Offset != next[o.Partition] || o.Err != nil {
					t.Errorf("end of partition %d: %d %v, want %d", o.Partition, o.Offset, o.Err, next[o.Partition])
				}
			})
		})
	}
}

func TestSourceSessions(t *testing.T) {
	s := testSource(t, 2, 4)
	ctx := testContext(t)
	c := testClient(t, s.Addr())
	fetch := func(id, epoch int32, partitions map[int32]int64, forget ...int32) *kmsg.FetchResponse {
		t.Helper()
		req := kmsg.NewPtrFetchRequest()
		req.MaxWaitMillis, req.MaxBytes, req.SessionID, req.SessionEpoch = 1, 1<<20, id, epoch
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = testTopic, s.topicID
		for p, offset := range partitions {
			part := kmsg.NewFetchRequestTopicPartition()
			part.Partition, part.FetchOffset, part.PartitionMaxBytes = p, offset, 1<<20
			topic.Partitions = append(topic.Partitions, part)
		}
		if len(partitions) > 0 {
			req.Topics = append(req.Topics, topic)
		}
		if len(forget) > 0 {
			req.ForgottenTopics = append(req.ForgottenTopics, kmsg.FetchRequestForgottenTopic{Topic: testTopic, TopicID: s.topicID, Partitions: forget})
		}
		resp, err := req.RequestWith(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	offsets := func(resp *kmsg.FetchResponse) string {
		var all []string
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				first := int64(-1)
				if len(p.RecordBatches) > 0 {
					first = int64(binary.BigEndian.Uint64(p.RecordBatches))
				}
				all = append(all, fmt.Sprintf("%d@%d", p.Partition, first))
			}
		}
		slices.Sort(all)
		return fmt.Sprint(all)
	}
	end, step := s.Records(), s.ring.Records
	open := fetch(0, 0, map[int32]int64{0: 0, 1: end})
	if got := offsets(open); open.SessionID == 0 || got != "[0@0 1@-1]" {
		t.Fatalf("full fetch: session %d with %s, want data of 0 and the watermark of 1", open.SessionID, got)
	}
	id := open.SessionID
	for i, step := range []struct {
		epoch      int32
		partitions map[int32]int64
		forget     []int32
		want       string
		code       *kerr.Error
	}{
		{1, map[int32]int64{0: step}, nil, fmt.Sprintf("[0@%d]", step), nil},
		{2, map[int32]int64{0: step + 1}, nil, fmt.Sprintf("[0@%d]", step), nil}, // inside a batch: the whole of it
		{2, nil, nil, "[]", kerr.InvalidFetchSessionEpoch},
		{3, map[int32]int64{0: end}, nil, "[]", nil},                 // nothing new anywhere
		{4, map[int32]int64{0: 0}, []int32{1}, "[0@0]", nil},         // 1 is gone
		{5, map[int32]int64{0: end, 1: end + 1}, nil, "[1@-1]", nil}, // out of range is told
		{6, map[int32]int64{7: 0}, []int32{1}, "[7@-1]", nil},        // so is a partition that is not there
	} {
		resp := fetch(id, step.epoch, step.partitions, step.forget...)
		if got := offsets(resp); got != step.want || kerr.ErrorForCode(resp.ErrorCode) != asError(step.code) {
			t.Errorf("step %d: %s and error %v, want %s and %v", i, got, kerr.ErrorForCode(resp.ErrorCode), step.want, step.code)
		}
	}
	if resp := fetch(id, -1, map[int32]int64{0: 0}); resp.SessionID != 0 {
		t.Errorf("closing fetch: session %d, want 0", resp.SessionID)
	}
	if resp := fetch(id, 7, nil); resp.ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("fetch in a closed session: %v, want %v", kerr.ErrorForCode(resp.ErrorCode), kerr.FetchSessionIDNotFound)
	}
}

func asError(e *kerr.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// A producer that knows nothing of us writes to discarded topics and to stored ones, by name and by id; the stored ones can be read.
func TestTargetIsWrittenByAProducer(t *testing.T) {
	for name, options := range map[string][]kgo.Opt{
		"by id":   nil,
		"by name": {kgo.MaxVersions(kversion.V3_0_0())},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			target := testTarget(t, map[string]int32{testTopic: 4})
			c := testClient(t, target.Addr(), append(options, kgo.ConsumeTopics("kferry-state.east.internal"))...)
			if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, "kferry-state.east.internal"); err != nil {
				t.Fatal(err)
			}
			const records = 10_000
			for i := range records {
				c.Produce(ctx, &kgo.Record{Topic: testTopic, Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := c.ProduceSync(ctx, kgo.KeySliceRecord([]byte("checkpoint"), []byte("7"))).FirstErr(); err == nil {
				t.Error("a record without a topic was taken")
			}
			stored := &kgo.Record{Topic: "kferry-state.east.internal", Value: []byte("checkpoint")}
			if err := c.ProduceSync(ctx, stored).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			got := target.Tally()
			if got.Records != records || got.Duplicates != 0 || got.Refused != 0 || got.Batches == 0 || got.Bytes == 0 {
				t.Errorf("tally %+v, want %d records and nothing refused", got, records)
			}
			fetches := c.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			if all := fetches.Records(); len(all) != 1 || string(all[0].Value) != "checkpoint" {
				t.Errorf("read back %d records of the state topic, want the one that was stored", len(all))
			}
			ends, err := kadm.NewClient(c).ListEndOffsets(ctx, testTopic)
			if err != nil {
				t.Fatal(err)
			}
			var sum int64
			ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
			if sum != records {
				t.Errorf("end offsets add up to %d, want %d", sum, records)
			}
		})
	}
}

// The target refuses what Kafka refuses, takes nothing of it, and says what it was.
func TestTargetChecks(t *testing.T) {
	w := Workload{Codec: "none", RecordBytes: 10, BatchBytes: 300}
	ring, err := w.Build(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	batch := func(epoch int16, sequence int32, change func([]byte)) []byte {
		b := slices.Clone(ring.Batches[0])
		binary.BigEndian.PutUint16(b[51:], uint16(epoch))
		binary.BigEndian.PutUint32(b[53:], uint32(sequence))
		if change != nil {
			change(b)
		}
		seal(b)
		return b
	}
	n := int32(ring.Records)
	target := testTarget(t, map[string]int32{testTopic: 1})
	key := logKey{testTopic, 0}
	for _, step := range []struct {
		name  string
		batch []byte
		base  int64
		code  int16
	}{
		{"unknown producer not at 0", batch(0, 1, nil), -1, kerr.OutOfOrderSequenceNumber.Code},
		{"first", batch(0, 0, nil), 0, 0},
		{"duplicate of the last", batch(0, 0, nil), 0, 0},
		{"second", batch(0, n, nil), int64(n), 0},
		{"duplicate of an earlier", batch(0, 0, nil), 0, 0},
		{"gap", batch(0, 3*n, nil), -1, kerr.OutOfOrderSequenceNumber.Code},
		{"third", batch(0, 2*n, nil), 2 * int64(n), 0},
		{"new epoch not at 0", batch(1, 3*n, nil), -1, kerr.OutOfOrderSequenceNumber.Code},
		{"new epoch", batch(1, 0, nil), 3 * int64(n), 0},
		{"old epoch", batch(0, 3*n, nil), -1, kerr.InvalidProducerEpoch.Code},
		{"base offset", batch(1, n, func(b []byte) { b[7] = 1 }), -1, kerr.CorruptMessage.Code},
		{"transactional", batch(1, n, func(b []byte) { b[22] |= 1 << 4 }), -1, kerr.CorruptMessage.Code},
		{"hole", batch(1, n, func(b []byte) { b[26]++ }), -1, kerr.CorruptMessage.Code},
		{"cut", batch(1, n, nil)[:200], -1, kerr.CorruptMessage.Code},
		{"fifth", batch(1, n, nil), 4 * int64(n), 0},
	} {
		base, code := target.append(key, step.batch)
		if base != step.base || code != step.code {
			t.Errorf("%s: base %d code %d, want %d and %d", step.name, base, code, step.base, step.code)
		}
	}
	wrong := batch(1, 2*n, nil)
	wrong[len(wrong)-1]++
	if _, code := target.append(key, wrong); code != kerr.CorruptMessage.Code {
		t.Errorf("wrong CRC: code %d, want %d", code, kerr.CorruptMessage.Code)
	}
	got := target.Tally()
	if got.Batches != 5 || got.Records != 5*int64(n) || got.Duplicates != 2 || got.Refused != 9 {
		t.Errorf("tally %+v, want 5 batches, %d records, 2 duplicates, 9 refused", got, 5*n)
	}
	const first = "orders/0: OUT_OF_ORDER_SEQUENCE_NUMBER: producer 4242 epoch 0 sequence 1"
	if got.Refusal != first {
		t.Errorf("first refusal %q, want %q", got.Refusal, first)
	}
}

// The loop is a whole forwarder between the two ends: what it read is what was taken.
func TestLoopForwardsAll(t *testing.T) {
	const partitions, batches = 2, 20
	s := testSource(t, partitions, batches)
	target := testTarget(t, map[string]int32{testTopic: partitions})
	records := partitions * s.Records()
	err := Loop(testContext(t), LoopConfig{From: s.Addr(), To: target.Addr(), Topic: testTopic, Partitions: partitions, Records: records})
	if err != nil {
		t.Fatal(err)
	}
	if got := target.Tally(); got.Records != records || got.Refused+got.Duplicates != 0 {
		t.Errorf("tally %+v, want %d records", got, records)
	}
}

// Every relay copies all, in plaintext and through TLS.
func TestRelayCopiesAll(t *testing.T) {
	security, err := newCertificate(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		relay RelayConfig
		tls   *Certificate
	}{
		{"256 KiB", relaySmall, nil},
		{"1 MiB", relayLarge, nil},
		{"writev", relayGather, nil},
		{"TLS", relaySmall, security},
	} {
		t.Run(c.name, func(t *testing.T) {
			const bytes = 30_000_001
			stream := StreamConfig{Workload: largeBatches, Bytes: bytes, TLS: c.tls}
			from, err := NewStreamSource(stream)
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			to, err := NewStreamSink(stream)
			if err != nil {
				t.Fatal(err)
			}
			defer to.Close()
			c.relay.From, c.relay.To, c.relay.TLS = from.Addr(), to.Addr(), c.tls
			if err := Relay(testContext(t), c.relay); err != nil {
				t.Fatal(err)
			}
			select {
			case <-to.ended:
			case <-testContext(t).Done():
				t.Fatal("the sink never saw the end")
			}
			if got := to.Tally().Bytes; got != bytes {
				t.Errorf("%d bytes arrived, want %d", got, bytes)
			}
		})
	}
}

// What gathers from two places changes nothing, wherever a read ends.
func TestGatherKeepsTheBytes(t *testing.T) {
	want := make([]byte, 300_000)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	for _, size := range []int{1, 61, 64 << 10, 64<<10 + 61, 1 << 20} {
		var got bytes.Buffer
		if err := gather(&got, bytes.NewReader(want), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("buffer of %d B: %d bytes arrived changed, %d were sent", size, got.Len(), len(want))
		}
	}
}
