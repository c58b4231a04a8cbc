// kferry-demo shows the main job in half a minute: two embedded clusters, a producer with several codecs, kferry between
// them, a live line, and a comparison of both logs byte by byte at the end. Its exit code is the result.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"kferry/pipeline"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

const (
	topic      = "orders"
	copied     = "east.orders"
	partitions = 6
)

func main() {
	seconds := flag.Duration("for", 10*time.Second, "how long records are produced")
	verbose := flag.Bool("v", false, "show kferry's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, *seconds, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "kferry-demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, during time.Duration, verbose bool) error {
	east, err := embedded("east")
	if err != nil {
		return err
	}
	defer east.Close()
	west, err := embedded("west")
	if err != nil {
		return err
	}
	defer west.Close()
	fmt.Fprintf(out, "two embedded clusters: east at %s, west at %s\n", east.ListenAddrs()[0], west.ListenAddrs()[0])
	client, err := kgo.NewClient(kgo.SeedBrokers(east.ListenAddrs()...))
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 3, nil, topic); err != nil {
		return fmt.Errorf("create %s: %w", topic, err)
	}

	cfg := pipeline.DefaultConfig()
	cfg.AdminListen = ""
	cfg.MemoryBytes = 256 << 20
	cfg.Clusters["east"] = cluster.Config{Alias: "east", Bootstrap: east.ListenAddrs()}
	cfg.Clusters["west"] = cluster.Config{Alias: "west", Bootstrap: west.ListenAddrs()}
	link := pipeline.DefaultLink("east", "west")
	link.Refresh = time.Second
	cfg.Links = []pipeline.LinkConfig{link}
	log := slog.New(slog.DiscardHandler)
	if verbose {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	p, err := pipeline.New(cfg, pipeline.Options{}, log)
	if err != nil {
		return err
	}
	defer p.Close()

	fmt.Fprintf(out, "kferry copies %s on east to %s on west; a producer writes with all five codecs for %v\n", topic, copied, during)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error {
		defer p.Stop()
		if err := produce(ctx, east.ListenAddrs(), during); err != nil {
			return err
		}
		return catchUp(ctx, p)
	})
	g.Go(func() error { return show(ctx, out, p) })
	if err := g.Wait(); err != nil && !errors.Is(err, errShown) {
		return err
	}
	return compare(context.WithoutCancel(ctx), out, east.ListenAddrs(), west.ListenAddrs())
}

func embedded(id string) (*kfake.Cluster, error) {
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.ClusterID(id))
	if err != nil {
		return nil, fmt.Errorf("start an embedded cluster: %w", err)
	}
	return c, nil
}

// produce writes records of a few hundred bytes, one client for each codec.
func produce(ctx context.Context, addrs []string, during time.Duration) error {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	until := time.Now().Add(during)
	var g errgroup.Group
	for i, codec := range codecs {
		g.Go(func() error {
			cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec),
				kgo.ProducerLinger(10*time.Millisecond), kgo.MaxBufferedRecords(2000))
			if err != nil {
				return err
			}
			defer cl.Close()
			random := rand.New(rand.NewPCG(uint64(i), 1))
			var failed error
			for n := 0; time.Now().Before(until) && ctx.Err() == nil; n++ {
				value := fmt.Appendf(nil, `{"order":%d,"customer":"c%04d","amount":%d,"note":"%x"}`, n, random.IntN(5000), random.IntN(100_000), random.Uint64())
				cl.Produce(ctx, &kgo.Record{Key: fmt.Appendf(nil, "c%d", random.IntN(5000)), Value: value}, func(_ *kgo.Record, err error) {
					if err != nil {
						failed = err
					}
				})
				if n%500 == 0 {
					time.Sleep(5 * time.Millisecond) // a steady load, not a stress test
				}
			}
			if err := cl.Flush(ctx); err != nil {
				return err
			}
			return failed
		})
	}
	return g.Wait()
}

// catchUp waits until every lane stands at the end of its log.
func catchUp(ctx context.Context, p *pipeline.Pipeline) error {
	for quiet := 0; quiet < 5; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		s := p.Snapshot().Links[0]
		if quiet++; s.LagRecords > 0 || s.Lanes["running"] < partitions {
			quiet = 0
		}
	}
	return nil
}

// errShown ends the live line together with the copy.
var errShown = errors.New("done")

func show(ctx context.Context, out io.Writer, p *pipeline.Pipeline) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last pipeline.LinkStatus
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := p.Snapshot().Links[0]
		fmt.Fprintf(out, "\r  %9d records copied   %8.0f records/s   %6.1f MB/s   lag %6d records, %4.1f s  ",
			s.Records, float64(s.Records-last.Records)*2, float64(s.Bytes-last.Bytes)*2/1e6, s.LagRecords, s.LagSeconds)
		last = s
		if s.Phase == "stopped" {
			fmt.Fprintln(out)
			return errShown
		}
	}
}

// compare reads both logs as they lie there: the record section of every batch has to be the same, byte for byte.
func compare(ctx context.Context, out io.Writer, east, west []string) error {
	const header, attributes = 61, 22
	batches, size := 0, 0
	codecs := make(map[byte]int)
	for partition := range int32(partitions) {
		from, err := kafkatest.RawBatches(ctx, east, topic, partition)
		if err != nil {
			return err
		}
		to, err := kafkatest.RawBatches(ctx, west, copied, partition)
		if err != nil {
			return err
		}
		if len(from) != len(to) {
			return fmt.Errorf("partition %d: %d batches on east, %d on west", partition, len(from), len(to))
		}
		for i := range from {
			if !bytes.Equal(from[i][header:], to[i][header:]) || from[i][attributes]&7 != to[i][attributes]&7 {
				return fmt.Errorf("partition %d: batch %d differs", partition, i)
			}
			batches++
			size += len(from[i])
			codecs[from[i][attributes]&7]++
		}
	}
	if batches == 0 {
		return errors.New("nothing was copied")
	}
	fmt.Fprintf(out, "compared: %d batches, %.1f MB, in %d codecs: the record sections are the same, byte for byte\n", batches, float64(size)/1e6, len(codecs))
	return nil
}
