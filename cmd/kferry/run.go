package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"kferry/pipeline"
)

var errAtOnce = errors.New("stopped at once by a second signal: the next start looks for what had not been stored yet")

func runCommand() *cobra.Command {
	var file string
	var caughtUp, asJSON bool
	var profile string
	cmd := &cobra.Command{
		Use:   "run -c FILE",
		Short: "Copies all links of a configuration until it is stopped",
		Long: "Copies all links of a configuration until it is stopped. The first SIGTERM or SIGINT lets what is in flight arrive\n" +
			"(30 s at most), stores the positions and exits 0; a second one stops at once and exits 1.\n\n" +
			"With --until-caught-up it is a job: it asks once for the ends of all partitions, copies up to them, prints a summary and\n" +
			"exits 0. It exits 1 with a list where some partitions cannot go on, and where it was stopped before.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(file)
			if err != nil {
				return err
			}
			log := newLogger(cfg.Log, cmd.ErrOrStderr())
			setProcs(log)
			if profile != "" {
				end, err := profileTo(profile)
				if err != nil {
					return err
				}
				defer end()
			}
			p, err := pipeline.New(cfg, pipeline.Options{UntilCaughtUp: caughtUp, LimitHeap: true}, log)
			if err != nil {
				return err
			}
			defer p.Close()

			began := time.Now()
			stopped, err := untilSignalled(cmd.Context(), p, log)
			if stopped && caughtUp && err == nil {
				err = errors.New("stopped before all was copied: run it again to go on from here")
			}
			if caughtUp || asJSON {
				s := summarize(p.Snapshot(), time.Since(began), err)
				return errors.Join(err, s.write(cmd.OutOrStdout(), asJSON))
			}
			return err
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&caughtUp, "until-caught-up", false, "end when all partitions have reached the end that they had at the start")
	cmd.Flags().StringVar(&profile, "cpuprofile", "", "write a CPU profile of the whole run to this file")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the summary at the end as JSON")
	return cmd
}

// untilSignalled runs p. The first signal drains it, the second ends it at once. It reports whether there was one.
func untilSignalled(ctx context.Context, p *pipeline.Pipeline, log *slog.Logger) (stopped bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{came: make(chan os.Signal, 2), drain: p.Stop, cancel: cancel, log: log}
	signal.Notify(s.came, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(s.came)
	var wg sync.WaitGroup
	wg.Go(func() { s.watch(ctx) })
	err = p.Run(ctx)
	cancel(nil)
	wg.Wait()
	return s.seen > 0, err
}

// signals turns the signals that come into a drain and then an end.
type signals struct {
	came   chan os.Signal
	drain  func()
	cancel context.CancelCauseFunc
	log    *slog.Logger
	seen   int // of watch's goroutine, and the caller's when that has ended
}

func (s *signals) watch(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-s.came:
			if s.seen++; s.seen > 1 {
				signal.Stop(s.came) // a third one is the system's
				s.cancel(errAtOnce)
				return
			}
			s.log.Info("stopping: what is in flight may arrive, positions are stored", "signal", sig.String())
			s.drain()
		}
	}
}

// profileTo profiles the process until end is called.
func profileTo(file string) (end func(), err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("write a CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("write a CPU profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}, nil
}
