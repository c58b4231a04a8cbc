package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/cluster"
)

const (
	readBytes = 4 << 20 // of one fetch response; a larger batch comes alone and whole
	readWait  = 500 * time.Millisecond
	readTries = 40 // without progress, until reading gives up
	readPause = 250 * time.Millisecond
)

// errOverrun says that retention has passed a cursor while it read.
var errOverrun = errors.New("retention has passed it meanwhile: verify again")

// logItem is one batch of a log. It is valid for as long as it is referenced: the garbage collector owns its bytes.
type logItem struct {
	batch.Batch
	aborted bool // data of an aborted transaction
	gap     bool // offsets in front of it are missing from the log
}

// logCursor reads the batches of one partition in order, up to an end, from its leader and by plain requests: verify is in
// no hurry and takes another way than the lanes do.
type logCursor struct {
	cluster   *cluster.Cluster
	topic     string
	partition int32
	committed bool  // aborted data are told apart
	at        int64 // the next offset to be read
	end       int64
	entry     bool // at may lie inside a batch
	items     []logItem
	bytes     int64
}

func (c *logCursor) seek(at int64) { c.at, c.entry, c.items = at, true, nil }

// head returns the next batch; ok is false at the end.
func (c *logCursor) head(ctx context.Context) (x logItem, ok bool, err error) {
	for tries := 0; len(c.items) == 0; tries++ {
		if c.at >= c.end {
			return logItem{}, false, nil
		}
		again, err := c.fetch(ctx)
		if err != nil {
			err = fmt.Errorf("read %s/%d of %s at %d: %w", c.topic, c.partition, c.cluster.Alias(), c.at, err)
			if !again || tries >= readTries {
				return logItem{}, false, err
			}
			select {
			case <-ctx.Done():
				return logItem{}, false, context.Cause(ctx)
			case <-time.After(readPause):
			}
			if err := c.cluster.Refresh(ctx); cluster.Fatal(err) {
				return logItem{}, false, err
			}
		}
	}
	return c.items[0], true, nil
}

// pop goes past the batch that head returned.
func (c *logCursor) pop() {
	c.at, c.entry = c.items[0].NextOffset(), false
	c.items = c.items[1:]
}

// fetch reads one response; again says whether its error may pass.
func (c *logCursor) fetch(ctx context.Context) (again bool, err error) {
	leader, ok := c.cluster.Topology().Leader(c.topic, c.partition)
	if !ok {
		return true, errors.New("it has no leader")
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(readWait.Milliseconds()), 1, readBytes
	if c.committed {
		req.IsolationLevel = 1
	}
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = c.topic, c.cluster.Topology().Topics[c.topic].ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = c.partition, c.at, readBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := c.cluster.Client().Broker(int(leader.Leader)).Request(ctx, req)
	if err != nil {
		err = cluster.Explain(err)
		return !cluster.Fatal(err) && ctx.Err() == nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return kerr.IsRetriable(err), err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if p := &resp.Topics[i].Partitions[j]; p.Partition == c.partition {
				return c.take(p)
			}
		}
	}
	return true, errors.New("no answer for it")
}

// take cuts a partition's answer into batches.
func (c *logCursor) take(p *kmsg.FetchResponseTopicPartition) (again bool, err error) {
	switch err := kerr.ErrorForCode(p.ErrorCode); {
	case errors.Is(err, kerr.OffsetOutOfRange) && p.LogStartOffset > c.at:
		return false, fmt.Errorf("the log starts at %d: %w", p.LogStartOffset, errOverrun)
	case err != nil:
		return kerr.IsRetriable(err), err
	}
	c.bytes += int64(len(p.RecordBatches))
	batches, _, err := batch.Scan(nil, nil, p.RecordBatches)
	aborted := abortedData(p.AbortedTransactions)
	next, entry := c.at, c.entry
	for _, b := range batches {
		drop := aborted.drops(b)
		if b.NextOffset() <= next {
			continue
		}
		if b.BaseOffset() >= c.end {
			break
		}
		if b.Magic() == 2 && b.BaseOffset() < next && !entry {
			return false, fmt.Errorf("offset %d comes twice", b.BaseOffset())
		}
		c.items = append(c.items, logItem{b, drop, b.Magic() == 2 && b.BaseOffset() > next})
		next, entry = b.NextOffset(), false
	}
	switch {
	case len(c.items) > 0:
		return false, nil // an error behind them comes again, in front
	case err != nil:
		return false, err
	case len(batches) > 0 && batches[len(batches)-1].NextOffset() > c.at:
		c.at = c.end // all that is left lies behind the end: the last offsets hold nothing
		return false, nil
	}
	return true, fmt.Errorf("nothing came, though the log should reach %d", c.end)
}

// abortedTxns tells aborted batches of one response by its list, as Kafka's consumer does (CompletedFetch.java): per producer, from
// each first offset on to the abort marker behind it.
type abortedTxns map[int64][]int64 // producer id → first offsets not yet ended, ascending

func abortedData(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) abortedTxns {
	a := make(abortedTxns, len(list))
	for _, t := range list {
		a[t.ProducerID] = append(a[t.ProducerID], t.FirstOffset)
	}
	for _, firsts := range a {
		slices.Sort(firsts)
	}
	return a
}

func (a abortedTxns) drops(b batch.Batch) bool {
	firsts := a[b.ProducerID()]
	if len(firsts) == 0 || b.NextOffset() <= firsts[0] {
		return false
	}
	if b.IsControl() {
		if marker, ok := b.ControlType(); ok && marker == batch.Abort {
			a[b.ProducerID()] = firsts[1:]
		}
		return false
	}
	return b.IsTransactional()
}
