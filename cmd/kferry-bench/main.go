// Command kferry-bench runs the scenarios of package bench: `kferry-bench list`, `kferry-bench run SCENARIO`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"kferry/bench"
)

// errMissed makes exit code 3: everything was measured, and a figure is beyond its bound.
var errMissed = errors.New("a figure misses its bound")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := &cobra.Command{
		Use:           "kferry-bench",
		Short:         "Measures kferry beside what it has to beat",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(listCommand(), runCommand(), reportCommand(), roleCommand())
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "kferry-bench:", err)
	if errors.Is(err, errMissed) {
		return 3
	}
	return 1
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range bench.Scenarios() {
				fmt.Fprintf(cmd.OutOrStdout(), "%-13s %s\n", s.Name, s.About)
			}
			return nil
		},
	}
}

// roleCommand is how run starts the processes beside the one under test.
func roleCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "role NAME CONFIG",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Role(cmd.Context(), args[0], args[1], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
