package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

const (
	liveTopic   = "live"
	liveRecord  = 1000 // bytes
	livePeriod  = 10 * time.Millisecond
	livePortion = 50 // records a period: 5 MB/s

	impactQuota   = 50e6 // bytes/s: consumer_byte_rate of kferry's client id
	impactKeptMin = 0.95
	impactWarm    = 3 * time.Second // until producer and consumer are at their pace
	impactRest    = time.Second     // before a phase: the consumer makes up for the one before
	impactLeast   = time.Second     // of a phase: less says nothing
)

// impactBatches make the log that is backfilled.
var impactBatches = Workload{Codec: "lz4", RecordBytes: liveRecord, BatchBytes: 256 << 10}

// felt is one phase: what the consumer got, and what the backfill moved meanwhile.
type felt struct {
	Bytes int64
	P99   float64 // ms
	Wall  time.Duration

	Backfill int64
	Filling  time.Duration // since its first byte
}

func consumed(f felt) float64   { return float64(f.Bytes) / f.Wall.Seconds() }
func backfilled(f felt) float64 { return float64(f.Backfill) / max(f.Filling.Seconds(), 1e-3) }
func p99(f felt) float64        { return f.P99 }

// SourceImpact measures what a consumer paced at 5 MB/s feels on a real broker: alone, beside a backfill of another topic by kferry,
// and beside one that a client quota of the broker holds back.
func SourceImpact(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "source-impact"
	rounds, during, records := 3, 10*time.Second, int64(6e6)
	if short {
		rounds, during, records = 1, 3*time.Second, 1e6
	}
	if ok, why := kafkatest.Available(); !ok {
		return nil, fmt.Errorf("real Kafka cannot run here: %s", why)
	}
	source, err := kafkatest.Start(ctx, kafkatest.Options{})
	if err != nil {
		return nil, err
	}
	defer source.Stop()
	if _, err := fill(ctx, source, impactBatches, forwardPartitions, records); err != nil {
		return nil, err
	}
	l, err := startLive(ctx, source)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	if err := pause(ctx, impactWarm); err != nil {
		return nil, err
	}
	phases := []string{"alone", "uncapped", "capped"}
	runs := make([][]felt, len(phases))
	for round := range rounds {
		for i, phase := range phases {
			f, err := h.impact(ctx, source, l, phase, fmt.Sprintf("%s%d", phase, round+1), during)
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", phase, round+1, rounds, err)
			}
			runs[i] = append(runs[i], f)
			fmt.Fprintf(h.Progress, "%-12s run %d/%d: consumer %.2f MB/s, p99 %.1f ms; backfill %.0f MB/s in %.1f s\n",
				phase, round+1, rounds, consumed(f)/1e6, f.P99, backfilled(f)/1e6, f.Wall.Seconds())
		}
	}
	alone := told(name, "source-impact-alone", "B/s", runs[0], consumed)
	return []Result{
		told(name, "source-impact-kept", "B/s", runs[2], consumed).keeps(alone, impactKeptMin),
		alone,
		told(name, "source-impact-kept-uncapped", "B/s", runs[1], consumed).beside(alone),
		told(name, "source-impact-p99-alone", "ms", runs[0], p99),
		told(name, "source-impact-p99-uncapped", "ms", runs[1], p99),
		told(name, "source-impact-p99-capped", "ms", runs[2], p99),
		told(name, "source-impact-backfill-uncapped", "B/s", runs[1], backfilled),
		told(name, "source-impact-backfill-capped", "B/s", runs[2], backfilled),
	}, nil
}

// impact is one phase. Each backfill has an alias of its own, so that it begins from nothing.
func (h *Host) impact(ctx context.Context, source *kafkatest.Kafka, l *live, phase, alias string, during time.Duration) (f felt, err error) {
	if err := pause(ctx, impactRest); err != nil {
		return f, err
	}
	if phase == "alone" {
		l.begin()
		if err := pause(ctx, during); err != nil {
			return f, err
		}
		return l.end()
	}
	if phase == "capped" {
		if err := quotaOf(ctx, l.client, false); err != nil {
			return f, err
		}
		defer func() {
			if e := quotaOf(context.WithoutCancel(ctx), l.client, true); err == nil {
				err = e
			}
		}()
	}
	target, err := h.start(ctx, roleTarget, TargetConfig{})
	if err != nil {
		return f, err
	}
	defer target.stop()
	name, args, err := link{alias: alias, from: source.Bootstrap()[0], to: target.Addr}.command(ctx, h)
	if err != nil {
		return f, err
	}
	l.begin()
	process, err := h.run(name, args...)
	if err != nil {
		return f, err
	}
	defer process.Stop()
	timer := time.NewTimer(during)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-process.Done():
		if err := process.Wait(ctx); err != nil {
			return f, fmt.Errorf("%w\n%s", err, process.Tail())
		}
	case <-ctx.Done():
		return f, context.Cause(ctx)
	}
	if f, err = l.end(); err != nil {
		return f, err
	}
	until := time.Now()
	t, err := target.tally()
	if err == nil && t.Bytes == 0 {
		err = fmt.Errorf("kferry moved nothing in %v\n%s", f.Wall, process.Tail())
	}
	f.Backfill, f.Filling = t.Bytes, until.Sub(t.First)
	return f, err
}

// quotaOf sets, or takes away, what kferry's client id may read of the source.
func quotaOf(ctx context.Context, client *kgo.Client, remove bool) error {
	id := cluster.DefaultClientID
	altered, err := kadm.NewClient(client).AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "consumer_byte_rate", Value: impactQuota, Remove: remove}},
	}})
	for _, a := range altered {
		if err == nil {
			err = a.Err
		}
	}
	if err != nil {
		return fmt.Errorf("set the quota of %s: %w", id, err)
	}
	return nil
}

// live is a producer and a consumer of a topic, at a steady pace.
type live struct {
	client *kgo.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	began  time.Time // of the phase
	bytes  int64
	delays []time.Duration
	err    error
}

func startLive(ctx context.Context, k *kafkatest.Kafka) (*live, error) {
	client, err := k.Client(kgo.ClientID("live"), kgo.ConsumeTopics(liveTopic), kgo.DefaultProduceTopic(liveTopic),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	if _, err := kadm.NewClient(client).CreateTopic(ctx, forwardPartitions, 1, nil, liveTopic); err != nil {
		client.Close()
		return nil, fmt.Errorf("create %s: %w", liveTopic, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &live{client: client, cancel: cancel}
	l.wg.Go(func() { l.produce(ctx) })
	l.wg.Go(func() { l.consume(ctx) })
	return l, nil
}

func (l *live) stop() {
	l.cancel()
	l.wg.Wait()
	l.client.Close()
}

// produce keeps to its schedule: a portion that is late does not move those behind it, and its records say when they were due.
func (l *live) produce(ctx context.Context) {
	due := time.Now()
	for pause(ctx, time.Until(due)) == nil {
		for range livePortion {
			value := make([]byte, liveRecord)
			binary.BigEndian.PutUint64(value, uint64(due.UnixNano()))
			l.client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					l.fail(fmt.Errorf("produce to %s: %w", liveTopic, err))
				}
			})
		}
		due = due.Add(livePeriod)
	}
}

func (l *live) consume(ctx context.Context) {
	for {
		fetches := l.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		fetches.EachError(func(topic string, p int32, err error) { l.fail(fmt.Errorf("consume %s/%d: %w", topic, p, err)) })
		now := time.Now().UnixNano()
		l.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			l.bytes += int64(len(r.Value))
			l.delays = append(l.delays, time.Duration(now-int64(binary.BigEndian.Uint64(r.Value))))
		})
		l.mu.Unlock()
	}
}

func (l *live) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// begin forgets what was before.
func (l *live) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began, l.bytes, l.delays = time.Now(), 0, l.delays[:0]
}

// end is what the consumer got since begin.
func (l *live) end() (felt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := felt{Bytes: l.bytes, Wall: time.Since(l.began)}
	switch {
	case l.err != nil:
		return f, l.err
	case f.Wall < impactLeast:
		return f, fmt.Errorf("the backfill took %v: too short to feel", f.Wall)
	case len(l.delays) == 0:
		return f, fmt.Errorf("the consumer of %s got nothing in %v", liveTopic, f.Wall)
	}
	f.P99 = percentile(slices.Clone(l.delays), 99)
	return f, nil
}
