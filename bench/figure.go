package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
)

// Result is one figure of one scenario: a line of kferry-bench's output. Its field names are a contract: scripts lean on them.
type Result struct {
	Scenario string   `json:"scenario"`
	Figure   string   `json:"figure"` // a slug of figures.md
	Value    float64  `json:"value"`  // the median of the runs
	Unit     string   `json:"unit"`
	Min      float64  `json:"min"`
	Max      float64  `json:"max"`
	Runs     int      `json:"runs"`
	Against  string   `json:"against"` // the rival's figure, "" where there is none
	Ratio    *float64 `json:"ratio"`   // value / rival's value, both medians of this session
	Bound    *float64 `json:"bound"`   // of the ratio, or without a rival of the value, at most or at least as figures.md says; null: told, not judged
	OK       bool     `json:"ok"`
}

// subject is what one run of a session measures.
type subject struct {
	name string
	run  func(ctx context.Context) (Cost, error)
}

// alternate runs the subjects in turns, so that what the machine does meanwhile falls on all of them alike.
func alternate(ctx context.Context, rounds int, progress io.Writer, subjects ...subject) ([][]Cost, error) {
	costs := make([][]Cost, len(subjects))
	for round := range rounds {
		for i, s := range subjects {
			c, err := s.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", s.name, round+1, rounds, err)
			}
			fmt.Fprintf(progress, "%-12s run %d/%d: cpu %7.3f s, %9d records, %6.2f GB in %6.2f s\n",
				s.name, round+1, rounds, c.CPU.Seconds(), c.Records, float64(c.Bytes)/1e9, c.Wall.Seconds())
			costs[i] = append(costs[i], c)
		}
	}
	return costs, nil
}

func perByte(c Cost) float64          { return float64(c.CPU.Nanoseconds()) / float64(c.Bytes) }
func perRecord(c Cost) float64        { return float64(c.CPU.Nanoseconds()) / float64(c.Records) }
func bytesPerSecond(c Cost) float64   { return float64(c.Bytes) / c.Wall.Seconds() }
func batchesPerSecond(c Cost) float64 { return float64(c.Batches) / c.Wall.Seconds() }
func recordsPerSecond(c Cost) float64 { return float64(c.Records) / c.Wall.Seconds() }

func perBatch(c Cost) float64 { return float64(c.CPU.Nanoseconds()) / float64(c.Batches) }

// told is a figure of some runs, without a bound.
func told[Run any](scenario, figure, unit string, runs []Run, of func(Run) float64) Result {
	values := make([]float64, len(runs))
	for i, run := range runs {
		values[i] = of(run)
	}
	slices.Sort(values)
	n := len(values)
	return Result{
		Scenario: scenario, Figure: figure, Unit: unit, Runs: n, OK: true,
		Value: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1],
	}
}

// beside tells r's ratio to a figure of the same session.
func (r Result) beside(rival Result) Result {
	ratio := r.Value / rival.Value
	r.Against, r.Ratio = rival.Figure, &ratio
	return r
}

// judged holds the ratio to a rival's figure against a bound: at most.
func (r Result) judged(rival Result, bound float64) Result {
	r = r.beside(rival)
	r.Bound, r.OK = &bound, *r.Ratio <= bound
	return r
}

// keeps holds it against a bound the other way round: at least.
func (r Result) keeps(rival Result, bound float64) Result {
	r = r.beside(rival)
	r.Bound, r.OK = &bound, *r.Ratio >= bound
	return r
}

// within holds the value itself against a bound.
func (r Result) within(bound float64) Result {
	r.Bound, r.OK = &bound, r.Value <= bound
	return r
}

// cheapest is the least of several rivals.
func cheapest(rivals ...Result) Result {
	return slices.MinFunc(rivals, func(a, b Result) int { return cmp.Compare(a.Value, b.Value) })
}
