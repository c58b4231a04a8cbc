package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// String is a result for people: one line.
func (r Result) String() string {
	s := fmt.Sprintf("%-13s %-36s %12s %-10s %s to %s in %d runs", r.Scenario, r.Figure, number(r.Value), r.Unit, number(r.Min), number(r.Max), r.Runs)
	if r.Ratio != nil {
		s += fmt.Sprintf("; %s of %s", ratio(*r.Ratio), r.Against)
	}
	if r.Bound != nil {
		s += fmt.Sprintf(", bound %s: %s", r.bound(), verdict(r.OK))
	}
	return s
}

// Report writes a markdown table of results, headed by what they were measured on.
func Report(ctx context.Context, w io.Writer, results []Result) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Commit %s, %s.\n\n", commit(ctx), machine())
	b.WriteString("| scenario | figure | median | min to max | runs | against | ratio | bound | |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		var of, bound, ok string
		if r.Ratio != nil {
			of = ratio(*r.Ratio)
		}
		if r.Bound != nil {
			bound, ok = r.bound(), verdict(r.OK)
		}
		fmt.Fprintf(&b, "| %s | %s | %s %s | %s to %s | %d | %s | %s | %s | %s |\n", r.Scenario, r.Figure,
			number(r.Value), r.Unit, number(r.Min), number(r.Max), r.Runs, r.Against, of, bound, ok)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// bound is printed as what it is held against: a ratio, or a value.
func (r Result) bound() string {
	if r.Ratio != nil {
		return ratio(*r.Bound)
	}
	return number(*r.Bound) + " " + r.Unit
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISSED"
}

// number prints three digits that matter, and large values in thousands or millions.
func number(v float64) string {
	switch {
	case v >= 1e7:
		return fmt.Sprintf("%.0f M", v/1e6)
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// ratio prints what is below a fifth as a fraction, the way the bounds are written.
func ratio(v float64) string {
	if v > 0 && v < 0.2 {
		return fmt.Sprintf("1/%.0f", 1/v)
	}
	return fmt.Sprintf("%.2f", v)
}

func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// machine names the processor, as far as the system tells.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel := ""
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		kernel = " " + strings.TrimSpace(string(release))
	}
	return fmt.Sprintf("%d cores of %s, %s%s, %s", runtime.NumCPU(), model, runtime.GOOS, kernel, runtime.Version())
}
