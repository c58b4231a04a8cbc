package bench

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
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
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if builtIn != "" {
			os.RemoveAll(builtIn)
		}
		os.Exit(code)
	}))
}

// builtIn is where the tests' kferry lies; set by built.
var builtIn string

// built is kferry from this tree, once for all tests: linking takes longer than they do.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "kferry-bench-test-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	return (&Host{Dir: dir}).kferry(context.Background())
})
