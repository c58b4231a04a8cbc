package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// oddTimeout is how long a log may take to get into its shape: a cleaner's round is half a second, on an idle machine.
const oddTimeout = 90 * time.Second

// oddLog is a topic of one partition on its way to a shape that is hard to get: the functions that make one (Holes,
// OldFormat, Transactions, …) return when the log's own batch headers show the shape. After the first error its methods do
// nothing; close returns it.
type oddLog struct {
	ctx       context.Context // of the call that makes the log
	k         *Kafka
	topic     string
	producers map[string]*kgo.Client // by name; "" writes without a producer id
	at        time.Time              // of the next record
	err       error
}

// newOddLog creates the topic. Its records begin an hour ago, a second apart.
func newOddLog(ctx context.Context, k *Kafka, topic string, configs map[string]string) *oddLog {
	l := &oddLog{ctx: ctx, k: k, topic: topic, producers: map[string]*kgo.Client{}, at: time.Now().Add(-time.Hour).Truncate(time.Second)}
	set := map[string]*string{}
	for key, value := range configs {
		set[key] = &value
	}
	l.administer("create", func(admin *kadm.Client) error {
		created, err := admin.CreateTopic(ctx, 1, 1, set, topic)
		return errors.Join(err, created.Err)
	})
	return l
}

func (l *oddLog) close() error {
	for _, p := range l.producers {
		p.Close()
	}
	return l.err
}

// do takes the next step, unless one before it failed.
func (l *oddLog) do(what string, step func() error) {
	if l.err != nil {
		return
	}
	if err := step(); err != nil {
		l.err = fmt.Errorf("%s %s: %w", what, l.topic, err)
	}
}

func (l *oddLog) administer(what string, step func(*kadm.Client) error) {
	l.do(what, func() error {
		client, err := l.k.Client()
		if err != nil {
			return err
		}
		defer client.Close()
		return step(kadm.NewClient(client))
	})
}

// producer gives the producer of a name; the options count where it has to be made.
func (l *oddLog) producer(name string, opts ...kgo.Opt) (*kgo.Client, error) {
	if p := l.producers[name]; p != nil {
		return p, nil
	}
	// By hand, so that what is appended together is one batch.
	opts = append(opts, kgo.ManualFlushing(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(l.topic))
	if name == "" {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	p, err := l.k.Client(opts...)
	if err == nil {
		l.producers[name] = p
	}
	return p, err
}

// append writes one batch, which is stored when it returns.
func (l *oddLog) append(producer string, records []*kgo.Record, opts ...kgo.Opt) {
	l.do("write to", func() error {
		p, err := l.producer(producer, opts...)
		if err != nil {
			return err
		}
		var failed error // one partition's promises come one by one
		for _, r := range records {
			r.Timestamp = l.at
			l.at = l.at.Add(time.Second)
			p.Produce(l.ctx, r, func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) })
		}
		return errors.Join(p.Flush(l.ctx), failed)
	})
}

// values are records without anything special.
func values(n int) []*kgo.Record {
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value %d", i)})
	}
	return records
}

// until waits for the log to have a shape. Each time before it looks again it takes the steps, if there are any.
func (l *oddLog) until(what string, shape func([]Head) bool, steps ...func()) {
	ctx, cancel := context.WithTimeoutCause(l.ctx, oddTimeout, fmt.Errorf("not so after %v", oddTimeout))
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for l.err == nil {
		for _, step := range steps {
			step()
		}
		heads, err := Heads(ctx, l.k, l.topic, 0)
		if err == nil && shape(heads) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.err = fmt.Errorf("wait for %s in %s: %w; it holds %+v", what, l.topic, errors.Join(context.Cause(ctx), err), heads)
		}
	}
}
