package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kferry/pipeline"
)

// shownTopics bounds the topics that are named in one line for people; --json has them all.
const shownTopics = 5

func checkCommand() *cobra.Command {
	var file string
	var asJSON, printACLs bool
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Says before a byte moves what will not pass",
		Long: "Reaches every cluster, plans the topics of every link, and compares permissions and settings on both sides: what a target\n" +
			"would refuse or compress again, what its retention would delete, which names are not forwarded. Nothing is written.\n\n" +
			"Exit codes: 0 would pass (warnings allowed), 1 a cluster does not answer, 2 would not pass, or wrong usage or configuration.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(file)
			if err != nil {
				return err
			}
			if printACLs {
				_, err := io.WriteString(cmd.OutOrStdout(), showACLs(cfg))
				return err
			}
			p, err := pipeline.New(cfg, pipeline.Options{}, newLogger(cfg.Log, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			defer p.Close()
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			report, err := p.Check(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(cmd.OutOrStdout()).Encode(report)
			} else {
				_, err = io.WriteString(cmd.OutOrStdout(), showFindings(report.Findings))
			}
			switch {
			case err != nil:
				return err
			case !report.Passes():
				return exit(exitRefused, errors.New("would not pass"))
			case !report.Reached():
				return exit(exitFailed, errors.New("not every cluster answers"))
			}
			return nil
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&printACLs, "print-acls", false, "print the kafka-acls.sh commands that this configuration needs, and ask no cluster")
	cmd.MarkFlagsMutuallyExclusive("json", "print-acls")
	return cmd
}

// showFindings writes findings for people. What is the same for several topics of a link stands there once.
func showFindings(findings []pipeline.Finding) string {
	type line struct {
		pipeline.Finding
		topics []string
	}
	var lines []*line
	same := make(map[pipeline.Finding]*line)
	for _, f := range findings {
		key := f
		key.Topic = ""
		if f.Topic == "" || same[key] == nil {
			l := &line{Finding: f}
			lines = append(lines, l)
			if f.Topic != "" {
				same[key] = l
			}
		}
		if f.Topic != "" {
			same[key].topics = append(same[key].topics, f.Topic)
		}
	}
	var b strings.Builder
	link := ""
	for _, l := range lines {
		if l.Link != link {
			link = l.Link
			fmt.Fprintf(&b, "\nlink %s\n", link)
		}
		fmt.Fprintf(&b, "%-4s  ", l.Level)
		if len(l.topics) > 0 {
			b.WriteString(strings.Join(l.topics[:min(len(l.topics), shownTopics)], ", "))
			if n := len(l.topics) - shownTopics; n > 0 {
				fmt.Fprintf(&b, " and %d more", n)
			}
			b.WriteString(": ")
		}
		fmt.Fprintln(&b, l.Text)
		if l.Cure != "" {
			fmt.Fprintf(&b, "      -> %s\n", l.Cure)
		}
	}
	return b.String()
}
