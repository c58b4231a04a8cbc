package sink

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

const (
	lookGather = 2 * time.Millisecond // how long questions are gathered, so that a broker's restart costs a few requests
	lookMost   = 500                  // partitions in one round of questions
	lookWait   = 10 * time.Second     // for one round
	scanBytes  = 4 << 20              // of one fetch of a scan
)

// looker asks the leaders of target partitions what they hold of ours. Questions of many lanes share requests.
type looker struct {
	sink      *Sink
	questions chan *question
	ended     chan struct{} // closed when run has ended
}

type question struct {
	target *target
	id     batch.Identity
	epoch  int32 // the leader's
	result lane.LookResult
	err    error
	done   chan struct{}
}

func (l *looker) init(s *Sink) {
	l.sink = s
	l.questions = make(chan *question)
	l.ended = make(chan struct{})
}

// look asks, and with scan then reads the headers of the log from at.Dst to find our last batch.
func (l *looker) look(ctx context.Context, t *target, id batch.Identity, at lane.Position, scan bool) (lane.LookResult, error) {
	q := &question{target: t, id: id, done: make(chan struct{})}
	select {
	case l.questions <- q:
	case <-ctx.Done():
		return lane.LookResult{}, context.Cause(ctx)
	case <-l.ended:
		return lane.LookResult{}, fmt.Errorf("look at %s/%d on %s: the sink has ended", t.topic, t.partition, l.sink.cluster.Alias())
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		return lane.LookResult{}, context.Cause(ctx)
	}
	if q.err != nil || !scan {
		return q.result, q.err
	}
	return l.scan(ctx, t, id, at, q.result)
}

// run gathers questions into rounds. Rounds run side by side, so that a broker that does not answer holds up nobody else's; as a
// lane asks one question at a time, their number is bounded.
func (l *looker) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer close(l.ended)
	defer wg.Wait()
	for {
		var first *question
		select {
		case <-ctx.Done():
			return
		case first = <-l.questions:
		}
		round := []*question{first}
		timer := time.NewTimer(lookGather)
	gather:
		for len(round) < lookMost {
			select {
			case q := <-l.questions:
				round = append(round, q)
			case <-timer.C:
				break gather
			case <-ctx.Done():
				break gather
			}
		}
		timer.Stop()
		wg.Go(func() { l.ask(ctx, round) })
	}
}

// ask sends a round to the leaders, side by side, and answers its questions.
func (l *looker) ask(ctx context.Context, round []*question) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	byBroker := make(map[int32][]*question)
	for _, q := range round {
		broker, epoch, _, err := q.target.leader()
		if err != nil {
			q.err = err
			close(q.done)
			continue
		}
		q.epoch = epoch
		byBroker[broker] = append(byBroker[broker], q)
	}
	var wg sync.WaitGroup
	for broker, qs := range byBroker {
		wg.Go(func() { l.askBroker(ctx, broker, qs) })
	}
	wg.Wait()
}

// askBroker puts the three requests of a look-up to one broker: the end, the producers, the end again. Only the leader of
// the current epoch answers the first and the last, so it led in between; any replica would answer the second.
func (l *looker) askBroker(ctx context.Context, broker int32, qs []*question) {
	defer func() {
		stale := false
		for _, q := range qs {
			if q.err != nil {
				stale = true
			}
			close(q.done)
		}
		if stale {
			l.sink.stale()
		}
	}()
	l.ends(ctx, broker, qs)
	l.producers(ctx, broker, qs)
	l.ends(ctx, broker, qs)
}

type place struct {
	topic     string
	partition int32
}

func index(qs []*question) map[place][]*question {
	m := make(map[place][]*question, len(qs))
	for _, q := range qs {
		if q.err == nil {
			p := place{q.target.topic, q.target.partition}
			m[p] = append(m[p], q)
		}
	}
	return m
}

// ends asks for the high watermarks.
func (l *looker) ends(ctx context.Context, broker int32, qs []*question) {
	asked := index(qs)
	if len(asked) == 0 {
		return
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topics := make(map[string]int)
	for p, q := range asked {
		i, ok := topics[p.topic]
		if !ok {
			i = len(req.Topics)
			topics[p.topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp, part.CurrentLeaderEpoch = p.partition, -1, q[0].epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, part)
	}
	resp, err := req.RequestWith(ctx, l.sink.cluster.Client().Broker(int(broker)))
	if err != nil {
		failAll(asked, fmt.Errorf("ask %s broker %d for its ends: %w", l.sink.cluster.Alias(), broker, err))
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, q := range asked[place{t.Topic, p.Partition}] {
				err := kerr.ErrorForCode(p.ErrorCode)
				if err == nil && !cluster.SoundOffset(p.Offset) {
					err = fmt.Errorf("%w: offset %d", cluster.ErrProtocol, p.Offset)
				}
				if err != nil {
					q.err = fmt.Errorf("ask for the end of %s/%d on %s: %w", t.Topic, p.Partition, l.sink.cluster.Alias(), err)
				} else {
					q.result.End = p.Offset
				}
			}
			delete(asked, place{t.Topic, p.Partition})
		}
	}
	failAll(asked, errors.New("the broker left the partition out of its answer"))
}

// producers asks for our producers' states. A broker that does not know the request leaves them unknown.
func (l *looker) producers(ctx context.Context, broker int32, qs []*question) {
	asked := index(qs)
	if len(asked) == 0 {
		return
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	topics := make(map[string]int)
	for p := range asked {
		i, ok := topics[p.topic]
		if !ok {
			i = len(req.Topics)
			topics[p.topic] = i
			t := kmsg.NewDescribeProducersRequestTopic()
			t.Topic = p.topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p.partition)
	}
	for _, q := range qs {
		q.result.Known, q.result.Epoch, q.result.Last = false, -1, -1
	}
	resp, err := req.RequestWith(ctx, l.sink.cluster.Client().Broker(int(broker)))
	if err != nil {
		if ctx.Err() == nil && cluster.Unsupported(err) {
			return // before Kafka 2.8: the end has to do
		}
		failAll(asked, fmt.Errorf("ask %s broker %d for its producers: %w", l.sink.cluster.Alias(), broker, err))
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, q := range asked[place{t.Topic, p.Partition}] {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					q.err = fmt.Errorf("ask for the producers of %s/%d on %s: %w", t.Topic, p.Partition, l.sink.cluster.Alias(), err)
					continue
				}
				for _, a := range p.ActiveProducers {
					if a.ProducerID != q.id.ProducerID {
						continue
					}
					q.result.Epoch = int16(a.ProducerEpoch)
					if q.result.Epoch == q.id.Epoch {
						q.result.Known, q.result.Last = true, a.LastSequence
					}
				}
			}
			delete(asked, place{t.Topic, p.Partition})
		}
	}
	failAll(asked, errors.New("the broker left the partition out of its answer"))
}

func failAll(asked map[place][]*question, err error) {
	for _, qs := range asked {
		for _, q := range qs {
			q.err = err
		}
	}
}

// scan reads batch headers of the target from at.Dst to the end and finds the last of ours: where others write too, only
// the log tells what is ours, and where it lies.
func (l *looker) scan(ctx context.Context, t *target, id batch.Identity, at lane.Position, r lane.LookResult) (lane.LookResult, error) {
	broker, epoch, topicID, err := t.leader()
	if err != nil {
		return r, err
	}
	pool := batch.NewPool(0)
	r.Scanned, r.NextDst = true, at.Dst
	for from := at.Dst; from < r.End; {
		req := kmsg.NewPtrFetchRequest()
		req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 0, 1, scanBytes, -1
		ft := kmsg.NewFetchRequestTopic()
		ft.Topic, ft.TopicID = t.topic, topicID
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.CurrentLeaderEpoch, fp.PartitionMaxBytes = t.partition, from, epoch, scanBytes
		ft.Partitions = append(ft.Partitions, fp)
		req.Topics = append(req.Topics, ft)
		resp, err := req.RequestWith(ctx, l.sink.cluster.Client().Broker(int(broker)))
		if err != nil {
			return r, fmt.Errorf("scan %s/%d on %s at %d: %w", t.topic, t.partition, l.sink.cluster.Alias(), from, err)
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return r, fmt.Errorf("scan %s/%d on %s at %d: the broker left the partition out of its answer", t.topic, t.partition, l.sink.cluster.Alias(), from)
		}
		p := &resp.Topics[0].Partitions[0]
		if p.ErrorCode == kerr.OffsetOutOfRange.Code {
			// Retention took what lay there. The sequences of what is left still count all of ours.
			place := cluster.Place{Topic: t.topic, Partition: t.partition}
			start := l.sink.cluster.Offsets(ctx, []cluster.Place{place}, cluster.Earliest, false)[place]
			if start.Err == nil && start.Offset > from {
				from = start.Offset
				continue
			}
		}
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return r, fmt.Errorf("scan %s/%d on %s at %d: %w", t.topic, t.partition, l.sink.cluster.Alias(), from, err)
		}
		next, err := scanPart(pool, p.RecordBatches, id, at, &r)
		if err != nil {
			return r, fmt.Errorf("scan %s/%d on %s at %d: %w", t.topic, t.partition, l.sink.cluster.Alias(), from, err)
		}
		if next <= from {
			return r, fmt.Errorf("scan %s/%d on %s at %d: the broker gives nothing below its end at %d", t.topic, t.partition, l.sink.cluster.Alias(), from, r.End)
		}
		from = next
	}
	return r, nil
}

// scanPart notes our batches among those in b and returns the offset behind them.
func scanPart(pool *batch.Pool, b []byte, id batch.Identity, at lane.Position, r *lane.LookResult) (next int64, err error) {
	if len(b) == 0 {
		return -1, nil
	}
	buf := pool.Get(len(b))
	defer buf.Release()
	copy(buf.Bytes(), b)
	batches, _, err := batch.Scan(nil, buf, buf.Bytes())
	next = -1
	for _, x := range batches {
		next = x.NextOffset()
		if x.Magic() == 2 && x.ProducerID() == id.ProducerID && x.ProducerEpoch() == id.Epoch && !x.IsControl() {
			if n := lane.SequenceDistance(at.Seq, x.BaseSequence()+x.LastOffsetDelta()); n > r.Written {
				r.Written, r.NextDst = n, next
			}
		}
		x.Release()
	}
	return next, err
}
