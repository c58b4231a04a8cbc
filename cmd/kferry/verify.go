package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kferry/pipeline"
)

// exitDiffers is the exit code of a verify that found a difference.
const exitDiffers = 3

// shownSpans bounds the lines of one kind that are printed for people; --json has them all.
const shownSpans = 20

func verifyCommand() *cobra.Command {
	var file string
	var asJSON bool
	var opts pipeline.VerifyOptions
	cmd := &cobra.Command{
		Use:   "verify -c FILE",
		Short: "Compares what was copied with its source",
		Long: "Walks each partition's log on the source from where its copy began to the stored position, less what the link drops, and\n" +
			"pairs its batches with those on the target, in order: by checksum where the bytes are the same, else record by record.\n" +
			"Whole batches of both sides are read and summed; --headers trusts the stored checksums. Nothing is written, and links may\n" +
			"be running. What retention has removed is skipped and named.\n\n" +
			"Exit codes: 0 equal, 3 differs, 1 could not compare all, 2 wrong usage or configuration.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := load(file)
			if err != nil {
				return err
			}
			if opts.Workers < 1 {
				return exit(exitRefused, fmt.Errorf("--workers %d: at least 1 is needed", opts.Workers))
			}
			log := newLogger(cfg.Log, cmd.ErrOrStderr())
			setProcs(log)
			p, err := pipeline.New(cfg, pipeline.Options{}, log)
			if err != nil {
				return err
			}
			defer p.Close()
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			progress := terminal(cmd.ErrOrStderr())
			if progress != nil {
				opts.Progress = progress.show
			}
			report, err := p.Verify(ctx, opts)
			if progress != nil {
				progress.clear()
			}
			if err != nil {
				return err
			}
			if err := writeReport(cmd.OutOrStdout(), report, asJSON); err != nil {
				return err
			}
			return verdict(report)
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&opts.Headers, "headers", false, "trust the stored checksums, do not sum the batches")
	cmd.Flags().StringSliceVar(&opts.Links, "link", nil, "compare only the link with this `NAME`; may be repeated")
	cmd.Flags().IntVar(&opts.Workers, "workers", 4, "partitions compared at once")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verdict makes the exit code of a report.
func verdict(r pipeline.VerifyReport) error {
	switch {
	case r.Differs():
		for _, l := range r.Links {
			if len(l.Differences) > 0 {
				return exit(exitDiffers, fmt.Errorf("link %s differs: %s", l.Name, l.Differences[0]))
			}
		}
	case !r.Complete():
		return exit(exitFailed, errors.New("not all could be compared"))
	}
	return nil
}

func writeReport(w io.Writer, r pipeline.VerifyReport, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := io.WriteString(w, showReport(r))
	return err
}

// showReport writes a report for people.
func showReport(r pipeline.VerifyReport) string {
	var b strings.Builder
	for _, l := range r.Links {
		result := "equal"
		switch {
		case len(l.Differences) > 0:
			result = "DIFFERS"
		case len(l.Uncompared) > 0:
			result = "not all compared"
		}
		fmt.Fprintf(&b, "link %s: %s: %d records in %d partitions, %s read\n", l.Name, result, l.Records, l.Partitions, showBytes(float64(l.Bytes)))
		if l.Stateless {
			fmt.Fprintf(&b, "  nothing is stored of this link: whole logs were compared\n")
		}
		if l.ByRecord > 0 {
			fmt.Fprintf(&b, "  %d of them record by record, as their batches are not the same bytes\n", l.ByRecord)
		}
		if l.Foreign > 0 {
			fmt.Fprintf(&b, "  %d records of other writers on the target were passed over\n", l.Foreign)
		}
		showList(&b, "difference: ", l.Differences)
		showList(&b, "not compared: ", l.Uncompared)
		showList(&b, "skipped: ", l.Skipped)
	}
	return b.String()
}

func showList[T fmt.Stringer](b *strings.Builder, what string, list []T) {
	for _, x := range list[:min(len(list), shownSpans)] {
		fmt.Fprintf(b, "  %s%s\n", what, x)
	}
	if n := len(list) - shownSpans; n > 0 {
		fmt.Fprintf(b, "  %sand %d more, see --json\n", what, n)
	}
}

// progressLine rewrites one line of a terminal.
type progressLine struct {
	w     io.Writer
	began time.Time
}

// terminal returns a progress line, nil where w is no terminal.
func terminal(w io.Writer) *progressLine {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progressLine{w: w, began: time.Now()}
}

const clearLine = "\r\x1b[K"

func (p *progressLine) show(done, total int64) {
	percent := 100.0
	if total > 0 {
		percent = 100 * float64(done) / float64(total)
	}
	fmt.Fprintf(p.w, clearLine+"compared %d of %d offsets, %.0f %%, %v", done, total, percent, time.Since(p.began).Round(time.Second))
}

func (p *progressLine) clear() { fmt.Fprint(p.w, clearLine) }
