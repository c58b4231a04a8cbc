package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// Roles of the processes beside the one under test. Each gets its configuration as JSON.
const (
	roleSource       = "source"        // SourceConfig
	roleTarget       = "target"        // TargetConfig
	roleStreamSource = "stream-source" // StreamConfig
	roleStreamSink   = "stream-sink"   // StreamConfig
	roleRelay        = "relay"         // RelayConfig; ends by itself
	roleLoop         = "kgo-loop"      // LoopConfig; ends by itself
	roleConsumer     = "consumer"      // ConsumerConfig
	roleCluster      = "cluster"       // ClusterConfig
)

// ready is the first line that an end prints.
type ready struct {
	Addr                    string
	Batches, Records, Bytes int64 // what a source holds, all partitions together
}

// Role runs one role. An end answers each line of in with its Tally and closes when in does, so that it never outlives the
// process that started it; the relay and the loop return when their volume is through.
func Role(ctx context.Context, name, config string, in io.Reader, out io.Writer) error {
	switch name {
	case roleSource:
		cfg, err := decode[SourceConfig](config)
		if err != nil {
			return err
		}
		s, err := NewSource(ctx, cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		n := int64(cfg.Partitions)
		return talk(ready{s.Addr(), n * cfg.Batches, n * s.Records(), n * s.Bytes()}, func() Tally { return Tally{} }, in, out)
	case roleTarget:
		cfg, err := decode[TargetConfig](config)
		if err != nil {
			return err
		}
		t, err := NewTarget(cfg)
		if err != nil {
			return err
		}
		defer t.Close()
		return talk(ready{Addr: t.Addr()}, t.Tally, in, out)
	case roleCluster:
		cfg, err := decode[ClusterConfig](config)
		if err != nil {
			return err
		}
		c, err := NewCluster(cfg)
		if err != nil {
			return err
		}
		defer c.Close()
		return talk(ready{Addr: c.ListenAddrs()[0]}, func() Tally { return Tally{} }, in, out)
	case roleConsumer:
		cfg, err := decode[ConsumerConfig](config)
		if err != nil {
			return err
		}
		c, err := NewConsumer(ctx, cfg)
		if err != nil {
			return err
		}
		defer c.Close()
		return talk(ready{}, func() Tally { return Tally{} }, in, out)
	case roleStreamSource, roleStreamSink:
		cfg, err := decode[StreamConfig](config)
		if err != nil {
			return err
		}
		open := NewStreamSource
		if name == roleStreamSink {
			open = NewStreamSink
		}
		s, err := open(cfg)
		if err != nil {
			return err
		}
		defer s.Close()
		return talk(ready{Addr: s.Addr(), Bytes: cfg.Bytes}, s.Tally, in, out)
	case roleRelay:
		cfg, err := decode[RelayConfig](config)
		if err != nil {
			return err
		}
		return Relay(ctx, cfg)
	case roleLoop:
		cfg, err := decode[LoopConfig](config)
		if err != nil {
			return err
		}
		return Loop(ctx, cfg)
	}
	return fmt.Errorf("role %q: unknown", name)
}

func decode[Config any](text string) (cfg Config, err error) {
	err = json.Unmarshal([]byte(text), &cfg)
	return cfg, err
}

func talk(hello ready, tally func() Tally, in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(hello); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := enc.Encode(tally()); err != nil {
			return err
		}
	}
	return lines.Err()
}
