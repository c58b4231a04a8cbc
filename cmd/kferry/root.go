package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kferry/cmd/internal/config"
	"kferry/pipeline"
	"kferry/pipeline/cluster"
)

// Exit codes beside 0.
const (
	exitFailed  = 1 // it was tried and did not work
	exitRefused = 2 // the command line, the configuration or what a cluster says to it is wrong: trying again cannot help
)

// rootCommand holds all commands, one file each.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "kferry",
		Short: "Replicates Kafka topics between clusters, batch by batch, without decoding them",
		Long: "kferry replicates Kafka topics between clusters by moving record batches as they lie in the log.\n\n" +
			"Begin with `kferry config example migration > link.yaml`, edit it, and `kferry run -c link.yaml`.\n\n" +
			"Exit codes: 0 done, 1 failed, 2 wrong usage or configuration; verify: 3 differs.",
		RunE:          help,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		runCommand(),
		statusCommand(),
		checkCommand(),
		verifyCommand(),
		configCommand(),
		versionCommand(),
	)
	return root
}

// run executes one command line and returns the exit code. An error is printed once, here.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	understood := false // cobra has taken the command line, so that an error is the command's own
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }

	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var problems config.Problems
	if errors.As(err, &problems) {
		fmt.Fprintln(stderr, problems) // file:line:column: sentence, for editors too
	} else {
		fmt.Fprintln(stderr, "kferry:", err)
	}
	if !understood {
		return exitRefused
	}
	return exitCode(err)
}

// exitCode says what an error of a command means to the caller.
func exitCode(err error) int {
	var coded *exitError
	var problems config.Problems
	var wrong pipeline.Problems
	switch {
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &problems), errors.As(err, &wrong), errors.Is(err, pipeline.ErrRefused), cluster.Fatal(err):
		return exitRefused
	}
	return exitFailed
}

// exitError is an error with an exit code of its own.
type exitError struct {
	code int
	err  error
}

func exit(code int, err error) error { return &exitError{code, err} }

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// configFlag gives a command its -c FILE.
func configFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVarP(into, "config", "c", "", "configuration `FILE`")
	if err := cmd.MarkFlagFilename("config", "yaml", "yml"); err != nil {
		panic("BUG: " + err.Error())
	}
}
