package bench

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchWaitMax caps a long poll at the end of a log, whatever the client asks for.
const fetchWaitMax = 5 * time.Second

// SourceConfig is a synthetic cluster of one broker and one topic whose logs have an end but lie nowhere.
type SourceConfig struct {
	Topic      string
	Partitions int32
	Batches    int64 // in each partition; 0: all are empty
	Workload   Workload
	TLS        *Certificate
}

// Source serves SourceConfig by real protocol: whatever kfake answers, and Fetch from the ring. Batches leave by writev; only
// their base offsets are written anew. As on Kafka, the last batch of a partition's share of an answer may be cut.
type Source struct {
	cfg      SourceConfig
	ring     *Ring
	topicID  [16]byte
	sessions sessions
	front    *front
	cluster  *kfake.Cluster
}

// NewSource builds the ring and listens on a free loopback port. Close ends it.
func NewSource(ctx context.Context, cfg SourceConfig) (*Source, error) {
	ring, err := cfg.Workload.Build(time.Now())
	if err != nil {
		return nil, err
	}
	front, err := newFront(cfg.TLS)
	if err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg, ring: ring, front: front}
	s.front.answer = map[int16]func(io.Writer, *request, *scratch) (bool, error){int16(kmsg.Fetch): s.fetch}
	s.front.amend = map[int16]func(kmsg.Request, kmsg.Response){
		int16(kmsg.ListOffsets):          s.listOffsets,
		int16(kmsg.OffsetForLeaderEpoch): s.epochEnds,
	}
	s.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("kferry-bench-source"),
		kfake.SeedTopics(cfg.Partitions, cfg.Topic), kfake.ListenFn(s.front.listen))
	if err != nil {
		return nil, fmt.Errorf("start the source's broker: %w", err)
	}
	ids, err := topicIDs(ctx, s.Addr(), cfg.TLS)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.topicID = ids[cfg.Topic]
	return s, nil
}

// Addr is the bootstrap address.
func (s *Source) Addr() string { return s.cluster.ListenAddrs()[0] }

// Close cuts all connections and returns when nothing of the source runs any more.
func (s *Source) Close() {
	s.cluster.Close()
	s.front.close()
}

// Records is how many records each partition holds: also its end offset.
func (s *Source) Records() int64 { return s.cfg.Batches * s.ring.Records }

// Bytes is what one partition holds, as whole batches.
func (s *Source) Bytes() int64 {
	var sum int64
	n := int64(len(s.ring.Batches))
	for i, b := range s.ring.Batches {
		turns := s.cfg.Batches / n
		if int64(i) < s.cfg.Batches%n {
			turns++
		}
		sum += turns * int64(len(b))
	}
	return sum
}

func (s *Source) ours(t kmsg.FetchRequestTopic) bool {
	return t.Topic == s.cfg.Topic || (t.Topic == "" && t.TopicID == s.topicID)
}

// fetch answers a Fetch request whole. A topic that is not the source's is left out of the answer: nothing that reads from a
// synthetic source asks for one.
func (s *Source) fetch(w io.Writer, r *request, buf *scratch) (bool, error) {
	req := r.body.(*kmsg.FetchRequest)
	now, full, code := s.sessions.open(req, s.ours)
	if code != 0 {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = code
		_, err := w.Write(appendResponse(nil, r.correlation, resp))
		return true, err
	}
	if !s.anyData(now) {
		select {
		case <-time.After(min(time.Duration(req.MaxWaitMillis)*time.Millisecond, fetchWaitMax)):
		case <-s.front.closed:
		}
	}
	answer := fetchAnswer{version: req.Version, b: appendHeader(buf.head[:0], r.correlation, req.ResponseKind()), buffers: buf.buffers[:0]}
	answer.open(now.id, s.cfg.Topic, s.topicID, s.choose(now, req, full))
	for _, p := range answer.parts {
		answer.partition(p, s.Records())
		for n, rest := p.offset/s.ring.Records, p.bytes; rest > 0; n++ {
			rest -= answer.batch(s.batch(n), n*s.ring.Records, rest)
		}
		answer.endPartition()
	}
	answer.end()
	buf.head, buf.buffers = answer.b, answer.buffers
	buffers := answer.buffers // WriteTo consumes its receiver
	_, err := buffers.WriteTo(w)
	return true, err
}

func (s *Source) batch(n int64) []byte { return s.ring.Batches[n%int64(len(s.ring.Batches))] }

func (s *Source) anyData(now *session) bool {
	for _, f := range now.partitions {
		if f.offset != s.Records() || !f.shown {
			return true
		}
	}
	return false
}

// choose settles what each partition gets. Partitions of which there is nothing new are left out, unless the fetch is a full one.
func (s *Source) choose(now *session, req *kmsg.FetchRequest, full bool) []fetchPart {
	var parts []fetchPart
	got := make(map[int32]bool)
	left := int(req.MaxBytes)
	for _, f := range now.partitions {
		p := fetchPart{fetchTarget: *f}
		switch {
		case f.partition < 0 || f.partition >= s.cfg.Partitions:
			p.code = kerr.UnknownTopicOrPartition.Code
		case f.offset < 0 || f.offset > s.Records():
			p.code = kerr.OffsetOutOfRange.Code
		case f.offset < s.Records():
			p.bytes = s.share(f, left, len(got) == 0)
		}
		if p.bytes > 0 {
			got[f.partition] = true
			left -= p.bytes
		}
		if full || !f.shown || p.bytes > 0 || p.code != 0 {
			parts = append(parts, p)
		}
		f.shown = p.code == 0
	}
	now.served(got)
	return parts
}

// share is how many bytes of partition f go into an answer with room for left more: a slice of the log by size, whole or not,
// but never less than one batch if the answer would else be empty, and nothing at all if not even one batch fits (Kafka's
// LocalLog.read and ReplicaManager.readFromLog).
func (s *Source) share(f *fetchTarget, left int, empty bool) int {
	n := f.offset / s.ring.Records
	first := len(s.batch(n))
	want := min(int(f.bytesMax), left)
	if want < first {
		if !empty {
			return 0
		}
		want = first
	}
	bytes := 0
	for ; n < s.cfg.Batches && bytes < want; n++ {
		bytes += len(s.batch(n))
	}
	return min(bytes, want)
}

// listOffsets mends the latest offset; kfake knows of an empty log, whose earliest is right.
func (s *Source) listOffsets(req kmsg.Request, resp kmsg.Response) {
	amendLatest(req.(*kmsg.ListOffsetsRequest), resp.(*kmsg.ListOffsetsResponse), func(topic string, partition int32) (int64, bool) {
		return s.Records(), topic == s.cfg.Topic
	})
}

func (s *Source) epochEnds(_ kmsg.Request, resp kmsg.Response) {
	for _, t := range resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		if t.Topic != s.cfg.Topic {
			continue
		}
		for i := range t.Partitions {
			if t.Partitions[i].ErrorCode == 0 {
				t.Partitions[i].EndOffset = s.Records()
			}
		}
	}
}

// amendLatest gives the partitions that were asked for their latest offset the one that end knows.
func amendLatest(req *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse, end func(topic string, partition int32) (int64, bool)) {
	const latest = -1
	type key struct {
		topic     string
		partition int32
	}
	wanted := make(map[key]bool)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			wanted[key{t.Topic, p.Partition}] = p.Timestamp == latest
		}
	}
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if offset, ok := end(t.Topic, p.Partition); ok && p.ErrorCode == 0 && wanted[key{t.Topic, p.Partition}] {
				p.Offset = offset
			}
		}
	}
}

// topicIDs asks a cluster for its topics.
func topicIDs(ctx context.Context, addr string, security *Certificate) (map[string][16]byte, error) {
	options := []kgo.Opt{kgo.SeedBrokers(addr)}
	if security != nil {
		dial, err := security.client()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(dial))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("list topics of %s: %w", addr, err)
	}
	ids := make(map[string][16]byte, len(topics))
	for name, t := range topics {
		ids[name] = t.ID
	}
	return ids, nil
}
