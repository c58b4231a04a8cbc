package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"kferry/bench"
)

func reportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report [FILE…]",
		Short: "Turn the JSON lines of run into the table of BENCHMARKS.md",
		Long:  "Turn the JSON lines of run, from files or standard input, into the table of BENCHMARKS.md. The commit and the machine that it names are the present ones.",
		RunE: func(cmd *cobra.Command, files []string) error {
			var results []bench.Result
			read := func(r io.Reader, name string) error {
				lines := bufio.NewScanner(r)
				for n := 1; lines.Scan(); n++ {
					var result bench.Result
					if err := json.Unmarshal(lines.Bytes(), &result); err != nil {
						return fmt.Errorf("%s:%d: %w", name, n, err)
					}
					results = append(results, result)
				}
				return lines.Err()
			}
			if len(files) == 0 {
				if err := read(cmd.InOrStdin(), "stdin"); err != nil {
					return err
				}
			}
			for _, name := range files {
				f, err := os.Open(name)
				if err != nil {
					return err
				}
				err = read(f, name)
				f.Close()
				if err != nil {
					return err
				}
			}
			return bench.Report(cmd.Context(), cmd.OutOrStdout(), results)
		},
	}
}
