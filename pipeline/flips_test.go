package pipeline

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/kafkatest"
)

// through has a cluster reached by dial.
func through(cfg Config, alias string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) Config {
	side := cfg.Clusters[alias]
	side.Dial = dial
	cfg.Clusters[alias] = side
	return cfg
}

// The batches of a topic that flips: four of each partition, of four records each.
const flipRecords, flipBatches = 4, 4

// flippy makes a topic of n partitions with flipBatches batches in each.
func (p *twins) flippy(topic string, n int) {
	p.Helper()
	p.topic(p.east, topic, int32(n))
	cl := p.client(p.east, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for batch := range flipBatches {
		for i := range flipRecords * n {
			cl.Produce(p.Context(), &kgo.Record{Topic: topic, Partition: int32(i % n), Value: fmt.Appendf(nil, "value %d of %d", i, batch)}, func(_ *kgo.Record, err error) {
				if err != nil {
					p.Error(err)
				}
			})
		}
		if err := cl.Flush(p.Context()); err != nil {
			p.Fatal(err)
		}
	}
}

// copied waits until all of a flippy topic is on the target, and compares.
func (p *twins) copied(pl *Pipeline, topic string) {
	p.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var behind []LaneStatus
		for _, part := range pl.Snapshot().Links[0].Partitions {
			if part.Topic == topic && part.SrcOffset != flipRecords*flipBatches {
				behind = append(behind, part)
			}
		}
		if len(behind) == 0 {
			break
		}
		if time.Now().After(deadline) {
			p.Fatalf("after a minute %d partitions are not copied, the first is %+v", len(behind), behind[0])
		}
	}
	p.same(topic, "east."+topic)
}

// flips changes one bit of one batch of each partition of a topic in an answer to Fetch: bit n in partition n.
type flips struct {
	base int64 // of the batch
	cut  bool  // and nothing behind it is delivered
	once map[int32]bool
}

func (f *flips) flip(p *kmsg.FetchResponseTopicPartition) {
	if f.once[p.Partition] {
		return
	}
	for b := p.RecordBatches; len(b) >= 61; {
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if int64(binary.BigEndian.Uint64(b)) == f.base {
			b[p.Partition/8] ^= 0x80 >> (p.Partition % 8)
			f.once[p.Partition] = true
			if f.cut {
				p.RecordBatches = p.RecordBatches[:len(p.RecordBatches)-len(b)+size]
			}
			return
		}
		b = b[size:]
	}
}

// rewriteFetch has f change the parts of an answer to Fetch, by topic name.
func (p *twins) rewriteFetch(c *kfake.Cluster, x kafkatest.Exchange, frame []byte, names func([16]byte) string, f func(topic string, p *kmsg.FetchResponseTopicPartition)) []byte {
	if x.Key != int16(kmsg.Fetch) {
		return frame
	}
	head := 8
	if x.Version >= 12 {
		head++
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = x.Version
	if err := resp.ReadFrom(frame[head:]); err != nil {
		p.Error(err)
		return frame
	}
	for i := range resp.Topics {
		topic := &resp.Topics[i]
		name := topic.Topic
		if x.Version >= 13 {
			name = names(topic.TopicID)
		}
		for j := range topic.Partitions {
			f(name, &topic.Partitions[j])
		}
	}
	frame = resp.AppendTo(slices.Clone(frame[:head]))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// names looks topics of c up by their ids.
func (p *twins) names(c *kfake.Cluster) func([16]byte) string {
	p.Helper()
	topics, err := kadm.NewClient(p.client(c)).ListTopics(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	byID := make(map[[16]byte]string)
	for _, t := range topics {
		byID[t.ID] = t.Topic
	}
	return func(id [16]byte) string { return byID[id] }
}

// Each bit of a batch's header flips once on its way from the source, in a partition of its own: the first 17 bytes, which no
// checksum covers, wherever the batch lies in its answer, and the rest in one place. Nothing is lost, doubled or out of order.
func TestFlippedHeaderBits(t *testing.T) {
	t.Parallel()
	p := newTwins(t)
	all := make(map[string]*flips)
	for i := range int64(flipBatches) {
		for _, cut := range []bool{false, true} {
			n := 17 * 8
			if i == 2 && !cut {
				n = 61 * 8
			}
			topic := fmt.Sprintf("batch-%d-%v", i, cut)
			p.flippy(topic, n)
			all[topic] = &flips{base: i * flipRecords, cut: cut, once: make(map[int32]bool)}
		}
	}
	names := p.names(p.east)
	var mu sync.Mutex
	wire := &kafkatest.Tamper{Answer: func(x kafkatest.Exchange, frame []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		return p.rewriteFetch(p.east, x, frame, names, func(topic string, part *kmsg.FetchResponseTopicPartition) {
			if f := all[topic]; f != nil {
				f.flip(part)
			}
		})
	}}
	pl, end := p.begin(through(p.config(DefaultLink("east", "west")), "east", wire.Dial))
	p.until("all lanes are there", func() bool { return len(pl.Snapshot().Links[0].Partitions) == 7*17*8+61*8 })
	for topic := range all {
		p.copied(pl, topic)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

// memory flips a bit where the bytes lie that a client writes: in what it holds, not only in what it sends.
type memory struct {
	net.Conn
	flip func([]byte)
}

func (c *memory) Write(b []byte) (int, error) {
	c.flip(b)
	return c.Conn.Write(b)
}

// A bit that flips behind the source's checksum is refused by the target. The lane reads again and goes on once it is gone.
func TestFlippedPayload(t *testing.T) {
	onAnswers := func(flip func([]byte)) func(context.Context, string, string) (net.Conn, error) {
		return (&kafkatest.Tamper{Answer: func(x kafkatest.Exchange, frame []byte) []byte { flip(frame); return frame }}).Dial
	}
	onRequests := func(flip func([]byte)) func(context.Context, string, string) (net.Conn, error) {
		return (&kafkatest.Tamper{Request: func(x kafkatest.Exchange, frame []byte) []byte { flip(frame); return frame }}).Dial
	}
	inMemory := func(flip func([]byte)) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &memory{nc, flip}, err
		}
	}
	for _, where := range []struct {
		name, side string
		dial       func(flip func([]byte)) func(context.Context, string, string) (net.Conn, error)
		stays      bool
	}{
		{"on the source's disk", "east", onAnswers, true},
		{"on the wire from the source", "east", onAnswers, false},
		{"in memory", "west", inMemory, false},
		{"on the wire to the target", "west", onRequests, false},
	} {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			p := newTwins(t)
			p.flippy("orders", 1)
			sound, damaged := []byte("value 1 of 2"), []byte("value 5 of 2")
			var flipped, mended, arrived atomic.Bool
			p.west.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				p.west.KeepControl()
				if bytes.Contains(req.AppendTo(nil), damaged) {
					arrived.Store(true)
				}
				return nil, nil, false
			})
			pl, end := p.begin(through(p.config(DefaultLink("east", "west")), where.side, where.dial(func(b []byte) {
				i := bytes.Index(b, sound)
				if i >= 0 && !mended.Load() && (flipped.CompareAndSwap(false, true) || where.stays) {
					copy(b[i:], damaged)
				}
			})))
			p.until("the lane parks", func() bool {
				parts := pl.Snapshot().Links[0].Partitions
				return len(parts) == 1 && parts[0].State == "parked" && parts[0].Reason == "corrupt-batch" && strings.Contains(parts[0].Detail, "CORRUPT_MESSAGE")
			})
			if n := p.end(p.west, "east.orders"); n != 2*flipRecords || !arrived.Load() {
				t.Errorf("the target ends at %d, damage arrived there: %v", n, arrived.Load())
			}
			mended.Store(true)
			p.copied(pl, "orders")
			if err := end(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
