package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/kafkatest"
)

const (
	mm2RatioMax    = 1.0 / 60
	mm2StallMax    = time.Minute // without a new record on the target, the start included
	mm2ArrivalPoll = 20 * time.Millisecond
)

// MM2 measures kferry and MirrorMaker 2 in turns on two real brokers: the same filled topic, each run under an alias of its own,
// so that every run begins from nothing. MM2's CPU is read when its last record is on the target, kferry's at its exit.
func MM2(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "mm2"
	rounds, records := 5, int64(10e6)
	if short {
		rounds, records = 1, 2e6
	}
	if ok, why := kafkatest.Available(); !ok {
		return nil, fmt.Errorf("real Kafka cannot run here: %s", why)
	}
	pair, err := startPair(ctx, records)
	if err != nil {
		return nil, err
	}
	defer pair.stop()
	round := 0
	costs, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) {
			round++
			return pair.kferry(ctx, h, fmt.Sprintf("kferry%d", round))
		}},
		subject{"mm2", func(ctx context.Context) (Cost, error) { return pair.mm2(ctx, h, fmt.Sprintf("mm%d", round)) }})
	if err != nil {
		return nil, err
	}
	rival := told(name, "mm2-cpu-per-record", "ns/record", costs[1], perRecord)
	return []Result{
		told(name, "real-cpu-per-record", "ns/record", costs[0], perRecord).judged(rival, mm2RatioMax),
		rival,
		told(name, "real-records-per-second", "records/s", costs[0], recordsPerSecond),
		told(name, "mm2-records-per-second", "records/s", costs[1], recordsPerSecond),
	}, nil
}

// pair is two real clusters of one broker, the source filled with the 100-byte workload.
type pair struct {
	source, target *kafkatest.Kafka
	client         *kgo.Client // of the target
	records        int64
}

func startPair(ctx context.Context, records int64) (p *pair, err error) {
	p = new(pair)
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	config := map[string]string{"log.segment.delete.delay.ms": "1000"} // what a run wrote is gone before the next
	if p.source, err = kafkatest.Start(ctx, kafkatest.Options{Config: config}); err != nil {
		return p, err
	}
	if p.target, err = kafkatest.Start(ctx, kafkatest.Options{Config: config}); err != nil {
		return p, err
	}
	if p.client, err = p.target.Client(); err != nil {
		return p, err
	}
	p.records, err = fill(ctx, p.source, smallRecords, forwardPartitions, records)
	return p, err
}

func (p *pair) stop() {
	if p.client != nil {
		p.client.Close()
	}
	for _, k := range []*kafkatest.Kafka{p.source, p.target} {
		if k != nil {
			k.Stop()
		}
	}
}

func (p *pair) kferry(ctx context.Context, h *Host, alias string) (Cost, error) {
	name, args, err := link{alias: alias, from: p.source.Bootstrap()[0], to: p.target.Bootstrap()[0]}.command(ctx, h)
	if err != nil {
		return Cost{}, err
	}
	process, err := h.run(name, args...)
	if err != nil {
		return Cost{}, err
	}
	defer process.Stop()
	return p.cost(ctx, alias, process, func() error { return process.Wait(ctx) })
}

func (p *pair) mm2(ctx context.Context, h *Host, alias string) (Cost, error) {
	classPath, err := kafkatest.MM2Jars(kafkatest.MM2Version).ClassPath(ctx)
	if err != nil {
		return Cost{}, err
	}
	path := filepath.Join(h.Dir, "mm2.properties")
	if err := os.WriteFile(path, fmt.Appendf(nil, mm2Properties, alias, p.source.Bootstrap()[0], p.target.Bootstrap()[0], forwardTopic), 0o600); err != nil {
		return Cost{}, err
	}
	process, err := h.run("java", "-Xms1g", "-Xmx2g", "-XX:+UseSerialGC", "-cp", classPath, "org.apache.kafka.connect.mirror.MirrorMaker", path)
	if err != nil {
		return Cost{}, err
	}
	defer process.Kill9()
	return p.cost(ctx, alias, process, func() error { return nil })
}

// mm2Properties is MirrorMaker 2 tuned by hand for the judged figure, CPU per record: side work off, large fetches, batches and polls,
// the workload's codec. One task and the serial collector were the cheapest of what we tried (4 million records, two busy cores: 6.3 us
// and 144,000 records/s; two tasks with the parallel collector 7.0 us and 222,000; two with G1 7.9 us and 232,000). It takes alias,
// source, target and topic.
const mm2Properties = `clusters = %[1]s, target
%[1]s.bootstrap.servers = %[2]s
target.bootstrap.servers = %[3]s
%[1]s->target.enabled = true
%[1]s->target.topics = %[4]s
target->%[1]s.enabled = false
tasks.max = 1

emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
offset.lag.max = 100000
sync.topic.configs.enabled = false
sync.topic.acls.enabled = false
refresh.groups.enabled = false

replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1

%[1]s.consumer.fetch.max.bytes = 52428800
%[1]s.consumer.max.partition.fetch.bytes = 4194304
%[1]s.consumer.max.poll.records = 10000
target.producer.compression.type = zstd
target.producer.batch.size = 524288
target.producer.linger.ms = 100
target.producer.buffer.memory = 134217728
target.producer.max.request.size = 8388608
`

// cost waits until all records of alias's topic are on the target and, by done, for the process; then takes its CPU time. The
// topics of the run are deleted.
func (p *pair) cost(ctx context.Context, alias string, process *kafkatest.Process, done func() error) (Cost, error) {
	topic := alias + "." + forwardTopic
	wall, err := p.arrived(ctx, topic, process)
	if err == nil {
		err = done()
	}
	if err != nil {
		return Cost{}, err
	}
	user, sys, err := process.CPU()
	if err != nil {
		return Cost{}, err
	}
	bytes, err := p.size(ctx, topic)
	if err != nil {
		return Cost{}, err
	}
	if _, err := kadm.NewClient(p.client).DeleteTopics(ctx, topic); err != nil {
		return Cost{}, fmt.Errorf("delete %s: %w", topic, err)
	}
	return Cost{CPU: user + sys, Wall: wall, Records: p.records, Bytes: bytes}, nil
}

// arrived polls the target's ends until all records are there, and returns the time since the first of them.
func (p *pair) arrived(ctx context.Context, topic string, process *kafkatest.Process) (time.Duration, error) {
	tick := time.NewTicker(mm2ArrivalPoll)
	defer tick.Stop()
	adm := kadm.NewClient(p.client)
	var before int64
	var first time.Time
	moved := time.Now()
	for {
		var ended bool
		select {
		case <-process.Done():
			ended = true // the ends are asked once more: it may have done all
		default:
		}
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return 0, fmt.Errorf("end offsets of %s: %w", topic, err)
		}
		var sum int64
		ends.Each(func(o kadm.ListedOffset) {
			if o.Err == nil {
				sum += o.Offset
			}
		})
		if first.IsZero() && sum > 0 {
			first = time.Now()
		}
		if sum > before {
			before, moved = sum, time.Now()
		}
		switch {
		case sum == p.records:
			return time.Since(first), nil
		case sum > p.records:
			return 0, fmt.Errorf("%d records on %s, the source has %d", sum, topic, p.records)
		case time.Since(moved) > mm2StallMax:
			return 0, fmt.Errorf("%d of %d records on %s and no more for %v\n%s", sum, p.records, topic, mm2StallMax, process.Tail())
		case ended:
			return 0, fmt.Errorf("the process ended with %d of %d records on %s: %w", sum, p.records, topic,
				errors.Join(process.Wait(ctx), errors.New(process.Tail())))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// size is the topic's bytes in the target's log.
func (p *pair) size(ctx context.Context, topic string) (int64, error) {
	dirs, err := kadm.NewClient(p.client).DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", topic, err)
	}
	var bytes int64
	dirs.Each(func(d kadm.DescribedLogDir) {
		for _, part := range d.Topics[topic] {
			bytes += part.Size
		}
	})
	return bytes, nil
}
