package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

var errInterrupted = errors.New("interrupted")

// untilInterrupted gives the context of a command that only reads: a signal ends it at once.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	came := make(chan os.Signal, 1)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case sig := <-came:
			cancel(fmt.Errorf("%w by %v", errInterrupted, sig))
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(came)
		cancel(nil)
		<-ended
	}
}
