package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// LoopConfig is a consume-produce loop between two clusters: the forwarder that most teams would write.
type LoopConfig struct {
	From, To   string // bootstrap addresses
	Topic      string // on both sides
	Partitions int32
	Records    int64 // it ends when so many are acknowledged
}

// Loop forwards records by kgo as well as kgo can: large fetches, zstd batches of up to a megabyte, a linger that fills them,
// idempotent with acks=all, each partition to the same partition. These settings were the cheapest that we found.
func Loop(ctx context.Context, cfg LoopConfig) error {
	offsets := make(map[int32]kgo.Offset)
	for p := range cfg.Partitions {
		offsets[p] = kgo.NewOffset().AtStart()
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(cfg.From),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{cfg.Topic: offsets}),
		kgo.FetchMaxBytes(50<<20), kgo.FetchMaxPartitionBytes(4<<20))
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := kgo.NewClient(kgo.SeedBrokers(cfg.To),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(1<<20),
		kgo.ProducerLinger(20*time.Millisecond), kgo.MaxBufferedRecords(200_000))
	if err != nil {
		return err
	}
	defer producer.Close()

	var failed atomic.Pointer[error]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	acked := func(_ *kgo.Record, err error) {
		if err != nil && failed.CompareAndSwap(nil, &err) {
			cancel()
		}
	}
	for sent := int64(0); sent < cfg.Records; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			break
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("fetch %s/%d: %w", errs[0].Topic, errs[0].Partition, errs[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			producer.Produce(ctx, &kgo.Record{
				Topic: cfg.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp,
			}, acked)
			sent++
		})
	}
	err = producer.Flush(ctx)
	if p := failed.Load(); p != nil {
		return fmt.Errorf("produce %s: %w", cfg.Topic, *p)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("flush: %w", err)
	}
	return ctx.Err()
}
