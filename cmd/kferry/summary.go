package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"kferry/pipeline"
)

// summary is what a run has done.
type summary struct {
	Seconds  float64       `json:"seconds"`
	CaughtUp bool          `json:"caught_up"`
	Error    string        `json:"error,omitempty"`
	Links    []linkSummary `json:"links"`
}

type linkSummary struct {
	Name       string         `json:"name"`
	Records    int64          `json:"records"`
	Bytes      int64          `json:"bytes"` // of batches
	Partitions int            `json:"partitions"`
	LagRecords int64          `json:"lag_records"`
	Lanes      map[string]int `json:"lanes"` // by their last state
}

// summarize takes the last snapshot of a run that ended with err.
func summarize(s pipeline.Status, took time.Duration, err error) summary {
	sum := summary{Seconds: took.Seconds(), CaughtUp: err == nil, Links: []linkSummary{}}
	if err != nil {
		sum.Error = err.Error()
	}
	for _, l := range s.Links {
		sum.Links = append(sum.Links, linkSummary{Name: l.Name, Records: l.Records, Bytes: l.Bytes, Partitions: len(l.Partitions),
			LagRecords: l.LagRecords, Lanes: l.Lanes})
	}
	return sum
}

func (s summary) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(s)
	}
	for _, l := range s.Links {
		rate := float64(l.Bytes) / max(s.Seconds, 0.001)
		if _, err := fmt.Fprintf(w, "link %s: %d records, %s in %d partitions, %s/s\n",
			l.Name, l.Records, showBytes(float64(l.Bytes)), l.Partitions, showBytes(rate)); err != nil {
			return err
		}
	}
	ended := "caught up"
	if !s.CaughtUp {
		ended = "not caught up"
	}
	_, err := fmt.Fprintf(w, "%s after %.1f s\n", ended, s.Seconds)
	return err
}

// showBytes writes a size for people: 12 B, 3.4 KiB, 5.6 GiB.
func showBytes(n float64) string {
	if n < 1024 {
		return fmt.Sprintf("%.0f B", n)
	}
	unit := 0
	for n /= 1024; n >= 1024 && unit < 3; n /= 1024 {
		unit++
	}
	return fmt.Sprintf("%.1f %s", n, [...]string{"KiB", "MiB", "GiB", "TiB"}[unit])
}
