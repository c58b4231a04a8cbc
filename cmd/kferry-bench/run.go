package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kferry/bench"
)

func runCommand() *cobra.Command {
	var short, asJSON bool
	var kferry string
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario and print its figures",
		Long: "Run a scenario and print its figures. Exit code 0: measured, every bound kept; 3: measured, a bound is missed; " +
			"1: could not measure.",
		Args:      cobra.ExactArgs(1),
		ValidArgs: names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			scenario, err := find(args[0])
			if err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "kferry-bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			host := &bench.Host{Self: []string{self, "role"}, Kferry: kferry, Dir: dir, Progress: cmd.ErrOrStderr()}
			results, err := scenario.Run(cmd.Context(), host, short)
			if err != nil {
				return fmt.Errorf("scenario %s: %w", scenario.Name, err)
			}
			for _, r := range results {
				if asJSON {
					err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
				} else {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), r)
				}
				if err != nil {
					return err
				}
			}
			for _, r := range results {
				if !r.OK {
					return fmt.Errorf("%w: %s", errMissed, r.Figure)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&short, "short", false, "smaller volumes and fewer runs: a check of the bench, not a figure to publish")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	cmd.Flags().StringVar(&kferry, "kferry", "", "the kferry binary to measure (built from this module where not given)")
	return cmd
}

func names() (all []string) {
	for _, s := range bench.Scenarios() {
		all = append(all, s.Name)
	}
	return all
}

func find(name string) (bench.Scenario, error) {
	for _, s := range bench.Scenarios() {
		if s.Name == name {
			return s, nil
		}
	}
	return bench.Scenario{}, fmt.Errorf("scenario %q: want one of %v", name, names())
}
