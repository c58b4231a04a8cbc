package bench

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ConsumerConfig is a plain kgo consumer of one topic, which reads and forgets until it is stopped.
type ConsumerConfig struct{ From, Topic string }

// Consumer is what most programs that listen to a topic are made of.
type Consumer struct {
	client *kgo.Client
	done   chan struct{}
}

// NewConsumer reads from the start of every partition. Close ends it.
func NewConsumer(ctx context.Context, cfg ConsumerConfig) (*Consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.From), kgo.ConsumeTopics(cfg.Topic))
	if err != nil {
		return nil, err
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, err
	}
	c := &Consumer{client, make(chan struct{})}
	go c.poll(ctx)
	return c, nil
}

func (c *Consumer) poll(ctx context.Context) {
	defer close(c.done)
	for {
		if err := c.client.PollFetches(ctx).Err0(); errors.Is(err, kgo.ErrClientClosed) || ctx.Err() != nil {
			return
		}
	}
}

// Close returns when nothing of the consumer runs any more.
func (c *Consumer) Close() {
	c.client.Close()
	<-c.done
}
