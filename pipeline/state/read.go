package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fetchBytes          = 8 << 20 // bytes of one fetch response
	fetchPartitionBytes = 1 << 20 // bytes of one partition in it
	fetchWait           = 500 * time.Millisecond
	stallRounds         = 40 // rounds without progress until reading gives up
	stallWait           = 250 * time.Millisecond
)

// readAll hands every record of the given partitions to each, in order within a
// partition, from the log start to where the end stood when it began. It
// fetches by hand because kgo's consumer does not tell its position: in a
// compacted log the last offsets may hold no record, and waiting for one would
// never end.
func readAll(ctx context.Context, cl *kgo.Client, topic string, partitions []int32, each func(*kgo.Record) error) error {
	ends, err := listOffsets(ctx, cl, topic, partitions, latest)
	if err != nil {
		return err
	}
	next, err := listOffsets(ctx, cl, topic, partitions, earliest)
	if err != nil {
		return err
	}
	r := reader{cl: cl, topic: topic, next: next, each: each}
	stalled := 0
	for {
		maps.DeleteFunc(r.next, func(p int32, at int64) bool { return at >= ends[p] })
		if len(r.next) == 0 {
			return nil
		}
		progress, err := r.round(ctx)
		if err != nil && !errors.Is(err, errAgain) {
			return err
		}
		if progress {
			stalled = 0
			continue
		}
		if stalled++; stalled == stallRounds {
			p := slices.Min(slices.Collect(maps.Keys(r.next)))
			return fmt.Errorf("read %s/%d at %d of %d: no progress: %w", topic, p, r.next[p], ends[p], cmp.Or(err, errAgain))
		}
		if err := sleep(ctx, stallWait); err != nil {
			return fmt.Errorf("read %s: %w", topic, err)
		}
	}
}

// errAgain marks what another round may cure: a leader that moved, a broker
// that did not answer.
var errAgain = errors.New("nothing new was answered")

type reader struct {
	cl    *kgo.Client
	topic string
	next  map[int32]int64 // partitions not yet at their end
	each  func(*kgo.Record) error
}

// round asks every leader once for what it has next.
func (r *reader) round(ctx context.Context) (progress bool, err error) {
	t, err := describe(ctx, r.cl, r.topic)
	if err != nil {
		return false, err
	}
	reqs := make(map[int32]*kmsg.FetchRequest)
	for _, p := range slices.Sorted(maps.Keys(r.next)) {
		leader, ok := t.leaders[p]
		if !ok {
			continue
		}
		req := reqs[leader]
		if req == nil {
			req = kmsg.NewPtrFetchRequest()
			req.MaxWaitMillis = int32(fetchWait.Milliseconds())
			req.MinBytes, req.MaxBytes = 1, fetchBytes
			rt := kmsg.NewFetchRequestTopic()
			rt.Topic, rt.TopicID = r.topic, t.id
			req.Topics = append(req.Topics, rt)
			reqs[leader] = req
		}
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p, r.next[p], fetchPartitionBytes
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
	}
	var last error = errAgain
	for leader, req := range reqs {
		kresp, err := r.cl.Broker(int(leader)).Request(ctx, req)
		if err != nil {
			last = fmt.Errorf("%w: fetch from broker %d: %w", errAgain, leader, err)
			continue
		}
		resp := kresp.(*kmsg.FetchResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			last = fmt.Errorf("%w: fetch from broker %d: %w", errAgain, leader, err)
			continue
		}
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				moved, err := r.take(&resp.Topics[i].Partitions[j])
				progress = progress || moved
				switch {
				case errors.Is(err, errAgain):
					last = err
				case err != nil:
					return progress, err
				}
			}
		}
	}
	return progress, last
}

// take hands one partition's records on and moves its position.
func (r *reader) take(rp *kmsg.FetchResponseTopicPartition) (moved bool, err error) {
	at, ok := r.next[rp.Partition]
	if !ok {
		return false, nil // not asked for
	}
	if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
		if errors.Is(err, kerr.OffsetOutOfRange) && rp.LogStartOffset > at { // deleted while we read
			r.next[rp.Partition] = rp.LogStartOffset
			return true, nil
		}
		if !kerr.IsRetriable(err) {
			return false, fmt.Errorf("read %s/%d at %d: %w", r.topic, rp.Partition, at, err)
		}
		return false, fmt.Errorf("%w: %w", errAgain, err)
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at, Topic: r.topic, Partition: rp.Partition,
	}, rp, kgo.DefaultDecompressor(), nil)
	for _, rec := range fp.Records {
		if err := r.each(rec); err != nil {
			return false, fmt.Errorf("read %s/%d at %d: %w", r.topic, rec.Partition, rec.Offset, err)
		}
	}
	if fp.Err != nil {
		return false, fmt.Errorf("read %s/%d at %d: %w", r.topic, rp.Partition, next, fp.Err)
	}
	r.next[rp.Partition] = next
	return next > at, nil
}

// ListOffsets' timestamps (KIP-79).
const (
	latest   = -1
	earliest = -2
)

func listOffsets(ctx context.Context, cl *kgo.Client, topic string, partitions []int32, at int64) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, p := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, at
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("list offsets of %s: %w", topic, err)
	}
	offsets := make(map[int32]int64, len(partitions))
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("list offsets of %s/%d: %w", topic, p.Partition, err)
			}
			if p.Offset < 0 {
				return nil, fmt.Errorf("list offsets of %s/%d: the broker answered %d", topic, p.Partition, p.Offset)
			}
			offsets[p.Partition] = p.Offset
		}
	}
	for _, p := range partitions {
		if _, ok := offsets[p]; !ok {
			return nil, fmt.Errorf("list offsets of %s/%d: no answer", topic, p)
		}
	}
	return offsets, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
