package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	latencyPartitions = 8
	latencyBytes      = 100 // of each record
	latencyWait       = 30 * time.Second
	latencyP50Max     = 2 // ms
)

// trickle is a steady stream of single records, to each partition in turn.
type trickle struct {
	partitions int32
	records    int // one a period
	warm       int // of them, at the start, left out of the figures
	period     time.Duration
}

// delays are one run's percentiles, in milliseconds.
type delays struct{ added50, added99, direct50, direct99 float64 }

// Latency measures what kferry adds to the time of a record: from its produce call until a consumer of the target has it, less
// from the same call until a consumer of the source has it, record by record. Both consumers and the producer are one process
// with one clock; the clusters are embedded and hold what they are given.
func Latency(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "latency"
	rounds, t := 5, trickle{latencyPartitions, 12_000, 2_000, time.Millisecond}
	if short {
		rounds, t.records = 1, 5_000
	}
	var runs []delays
	for round := range rounds {
		d, err := h.latency(ctx, t)
		if err != nil {
			return nil, fmt.Errorf("run %d of %d: %w", round+1, rounds, err)
		}
		runs = append(runs, d)
		fmt.Fprintf(h.Progress, "kferry       run %d/%d: p50 +%.3f ms, p99 +%.3f ms; direct %.3f and %.3f ms\n",
			round+1, rounds, d.added50, d.added99, d.direct50, d.direct99)
	}
	return []Result{
		told(name, "latency-added-p50", "ms", runs, func(d delays) float64 { return d.added50 }).within(latencyP50Max),
		told(name, "latency-added-p99", "ms", runs, func(d delays) float64 { return d.added99 }),
		told(name, "latency-direct-p50", "ms", runs, func(d delays) float64 { return d.direct50 }),
		told(name, "latency-direct-p99", "ms", runs, func(d delays) float64 { return d.direct99 }),
	}, nil
}

func (h *Host) latency(ctx context.Context, t trickle) (delays, error) {
	d, _, err := h.trickle(ctx, t, nil)
	return d, err
}

// trickle sends t through kferry, whose process is observed meanwhile. beside, where it is given, loads other partitions all the
// while.
func (h *Host) trickle(ctx context.Context, t trickle, beside *hot) (d delays, o observed, err error) {
	topics, names, lanes := map[string]int32{forwardTopic: t.partitions}, []string{forwardTopic}, t.partitions
	if beside != nil {
		topics[hotTopic], names, lanes = beside.partitions, append(names, hotTopic), lanes+beside.partitions
	}
	source, err := h.start(ctx, roleCluster, ClusterConfig{ID: "kferry-bench-source", Topics: topics})
	if err != nil {
		return d, o, err
	}
	defer source.stop()
	target, err := h.start(ctx, roleCluster, ClusterConfig{ID: "kferry-bench-target"})
	if err != nil {
		return d, o, err
	}
	defer target.stop()
	const alias = "source"
	s, err := h.serve(ctx, link{alias: alias, from: source.Addr, to: target.Addr, topics: names, forever: true})
	if err != nil {
		return d, o, err
	}
	defer s.Stop()
	if err := s.copies(ctx, lanes); err != nil {
		return d, o, err
	}
	during, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	loaded := make(chan error, 1)
	if beside != nil {
		wg.Go(func() { loaded <- beside.run(during, source.Addr) })
	}
	var seen observed
	watched := make(chan error, 1)
	wg.Go(func() {
		var err error
		seen, err = observe(during, s.PID(), time.Duration(t.records)*t.period)
		watched <- err
	})
	p := newProbe(t)
	if err := p.run(ctx, source.Addr, target.Addr, alias+"."+forwardTopic); err != nil {
		return d, o, fmt.Errorf("%w\n%s", err, s.Tail())
	}
	err = <-watched
	stop()
	if beside != nil {
		err = errors.Join(err, <-loaded, beside.followed(ctx, s, t))
	}
	return p.delays(), seen, err
}

// probe sends records that carry their number and notes when each was sent, and seen on either side.
type probe struct {
	trickle
	began          time.Time
	sent           []time.Duration
	direct, copied sighting
}

// sighting is when a consumer saw each record, in nanoseconds since the probe began; 0: not yet.
type sighting struct {
	at   []atomic.Int64
	left atomic.Int64
	all  chan struct{}
}

func newProbe(t trickle) *probe {
	p := &probe{trickle: t, began: time.Now(), sent: make([]time.Duration, t.records)}
	for _, s := range []*sighting{&p.direct, &p.copied} {
		s.at, s.all = make([]atomic.Int64, t.records), make(chan struct{})
		s.left.Store(int64(t.records))
	}
	return p
}

func (p *probe) run(ctx context.Context, from, to, copied string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.records)*p.period+latencyWait)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, c := range []struct {
		addr, topic string
		seen        *sighting
	}{{from, forwardTopic, &p.direct}, {to, copied, &p.copied}} {
		client, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumeTopics(c.topic), kgo.MetadataMinAge(100*time.Millisecond))
		if err != nil {
			return err
		}
		defer client.Close() // ends its goroutine, before Wait
		wg.Go(func() { p.watch(ctx, client, c.seen) })
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(from), kgo.DefaultProduceTopic(forwardTopic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := p.produce(ctx, producer); err != nil {
		return err
	}
	for _, s := range []*sighting{&p.direct, &p.copied} {
		select {
		case <-s.all:
		case <-ctx.Done():
			return fmt.Errorf("wait for the probe's records: %d missing on the source, %d on the target: %w",
				p.direct.left.Load(), p.copied.left.Load(), context.Cause(ctx))
		}
	}
	return nil
}

// produce keeps to the schedule: a record that is late does not move those behind it.
func (p *probe) produce(ctx context.Context, client *kgo.Client) error {
	failed := make(chan error, 1)
	start := time.Now()
	for i := range p.records {
		if err := pause(ctx, time.Until(start.Add(time.Duration(i)*p.period))); err != nil {
			return err
		}
		value := make([]byte, latencyBytes)
		binary.BigEndian.PutUint64(value, uint64(i))
		p.sent[i] = time.Since(p.began)
		client.Produce(ctx, &kgo.Record{Partition: int32(i) % p.partitions, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("flush the probe: %w", err)
	}
	select {
	case err := <-failed:
		return fmt.Errorf("produce the probe: %w", err)
	default:
		return nil
	}
}

func (p *probe) watch(ctx context.Context, client *kgo.Client, seen *sighting) {
	for {
		fetches := client.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			return
		}
		now := int64(time.Since(p.began))
		fetches.EachRecord(func(r *kgo.Record) {
			i := binary.BigEndian.Uint64(r.Value)
			if seen.at[i].CompareAndSwap(0, now) && seen.left.Add(-1) == 0 {
				close(seen.all)
			}
		})
	}
}

// delays is called when all was seen.
func (p *probe) delays() delays {
	var added, direct []time.Duration
	for i := p.warm; i < p.records; i++ {
		at := time.Duration(p.direct.at[i].Load())
		direct = append(direct, at-p.sent[i])
		added = append(added, time.Duration(p.copied.at[i].Load())-at)
	}
	return delays{percentile(added, 50), percentile(added, 99), percentile(direct, 50), percentile(direct, 99)}
}

// percentile sorts all and returns milliseconds: the least value that so many in a hundred do not exceed.
func percentile(all []time.Duration, percent int) float64 {
	slices.Sort(all)
	return float64(all[max(0, (len(all)*percent+99)/100-1)]) / 1e6
}
