package bench

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test binary be the processes beside the one under test, as kferry-bench is.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "role" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := Role(ctx, os.Args[2], os.Args[3], os.Stdin, os.Stdout)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
