package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tally is what a target has taken. Counts are of appended batches: a duplicate that was recognised, or a batch that was
// refused, is in its own field only.
type Tally struct {
	Batches    int64
	Records    int64
	Bytes      int64
	Duplicates int64     // batches answered from the window of the last five
	Refused    int64     // batches that Kafka would have refused too
	Refusal    string    // the first of them: topic, partition, reason
	First      time.Time // of appends
	Last       time.Time
}

// TargetConfig says what is there from the start.
type TargetConfig struct {
	Topics map[string]int32 // partition counts, by name
	TLS    *Certificate
}

// Target is a synthetic cluster of one broker. Topics whose names end in .internal, or begin with __, are kfake's and are
// stored. Batches for all others are checked as a broker would (size, CRC, count, sequence), counted and forgotten; only their
// decompression is left out.
type Target struct {
	cfg     TargetConfig
	front   *front
	cluster *kfake.Cluster

	mu    sync.Mutex // guards all below; held for a partition's append, never while hashing
	names map[[16]byte]string
	logs  map[logKey]*log
	tally Tally
}

type logKey struct {
	topic     string
	partition int32
}

// NewTarget listens on a free loopback port. Close ends it.
func NewTarget(cfg TargetConfig) (*Target, error) {
	front, err := newFront(cfg.TLS)
	if err != nil {
		return nil, err
	}
	t := &Target{cfg: cfg, front: front, names: make(map[[16]byte]string), logs: make(map[logKey]*log)}
	t.front.answer = map[int16]func(io.Writer, *request, *scratch) (bool, error){int16(kmsg.Produce): t.produce}
	t.front.amend = map[int16]func(kmsg.Request, kmsg.Response){
		int16(kmsg.ListOffsets):       t.listOffsets,
		int16(kmsg.DescribeProducers): t.describeProducers,
	}
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("kferry-bench-target"), kfake.ListenFn(t.front.listen)}
	for topic, partitions := range cfg.Topics {
		options = append(options, kfake.SeedTopics(partitions, topic))
	}
	if t.cluster, err = kfake.NewCluster(options...); err != nil {
		return nil, fmt.Errorf("start the target's broker: %w", err)
	}
	return t, nil
}

// Addr is the bootstrap address.
func (t *Target) Addr() string { return t.cluster.ListenAddrs()[0] }

// Close cuts all connections and returns when nothing of the target runs any more.
func (t *Target) Close() {
	t.cluster.Close()
	t.front.close()
}

// Tally is what was taken until now.
func (t *Target) Tally() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tally
}

func discards(topic string) bool {
	return !strings.HasSuffix(topic, ".internal") && !strings.HasPrefix(topic, "__")
}

// produce appends a request's batches to nothing. A request for stored topics is kfake's; one that mixes both kinds is answered
// with an error for the stored ones, which no client under test sends.
func (t *Target) produce(w io.Writer, r *request, _ *scratch) (bool, error) {
	req := r.body.(*kmsg.ProduceRequest)
	if req.Acks == 0 {
		return false, errors.New("produce with acks=0: the front answers every request")
	}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	seen := make(map[logKey]bool)
	ours := false
	for _, rt := range req.Topics {
		topic, err := t.name(rt)
		if err != nil {
			return false, err
		}
		at := kmsg.NewProduceResponseTopic()
		at.Topic, at.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			ap := kmsg.NewProduceResponseTopicPartition()
			ap.Partition, ap.LogStartOffset = rp.Partition, 0
			key := logKey{topic, rp.Partition}
			switch {
			case topic == "" || !discards(topic):
				ap.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case seen[key]: // Kafka would lose the first of the two in silence
				ours = true
				ap.ErrorCode = t.refuse(key, kerr.InvalidRequest, "twice in one request")
			default:
				ours = true
				ap.BaseOffset, ap.ErrorCode = t.append(key, rp.Records)
			}
			seen[key] = true
			at.Partitions = append(at.Partitions, ap)
		}
		resp.Topics = append(resp.Topics, at)
	}
	if !ours {
		return false, nil
	}
	_, err := w.Write(appendResponse(nil, r.correlation, resp))
	return true, err
}

// name resolves a topic id (v13 and later). Topics are created while the target runs, so an unknown one is asked for.
func (t *Target) name(rt kmsg.ProduceRequestTopic) (string, error) {
	if rt.Topic != "" {
		return rt.Topic, nil
	}
	t.mu.Lock()
	name, ok := t.names[rt.TopicID]
	t.mu.Unlock()
	if ok {
		return name, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ids, err := topicIDs(ctx, t.Addr(), t.cfg.TLS)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, id := range ids {
		t.names[id] = name
	}
	return t.names[rt.TopicID], nil
}

func (t *Target) append(key logKey, records []byte) (base int64, code int16) {
	b, reason := checkHeader(records)
	if reason != "" {
		return -1, t.refuse(key, kerr.CorruptMessage, reason)
	}
	now := time.Now()
	t.mu.Lock()
	l := t.logs[key]
	if l == nil {
		l = &log{producers: make(map[int64]*producer)}
		t.logs[key] = l
	}
	base, duplicate, verdict := l.append(b)
	switch {
	case verdict != nil:
		t.mu.Unlock()
		return -1, t.refuse(key, verdict, fmt.Sprintf("producer %d epoch %d sequence %d", b.producerID, b.epoch, b.sequence))
	case duplicate:
		t.tally.Duplicates++
	default:
		t.tally.Batches++
		t.tally.Records += int64(b.count)
		t.tally.Bytes += int64(len(records))
		if t.tally.First.IsZero() {
			t.tally.First = now
		}
		t.tally.Last = now
	}
	t.mu.Unlock()
	return base, 0
}

func (t *Target) refuse(key logKey, why *kerr.Error, detail string) int16 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tally.Refused++; t.tally.Refused == 1 {
		t.tally.Refusal = fmt.Sprintf("%s/%d: %s: %s", key.topic, key.partition, why.Message, detail)
	}
	return why.Code
}

func (t *Target) listOffsets(req kmsg.Request, resp kmsg.Response) {
	amendLatest(req.(*kmsg.ListOffsetsRequest), resp.(*kmsg.ListOffsetsResponse), func(topic string, partition int32) (int64, bool) {
		t.mu.Lock()
		defer t.mu.Unlock()
		l := t.logs[logKey{topic, partition}]
		if l == nil {
			return 0, false
		}
		return l.end, true
	})
}

func (t *Target) describeProducers(_ kmsg.Request, resp kmsg.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rt := range resp.(*kmsg.DescribeProducersResponse).Topics {
		for i := range rt.Partitions {
			p := &rt.Partitions[i]
			if l := t.logs[logKey{rt.Topic, p.Partition}]; l != nil && p.ErrorCode == 0 {
				p.ActiveProducers = l.active()
			}
		}
	}
}
