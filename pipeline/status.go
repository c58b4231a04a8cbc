package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"kferry/pipeline/lane"
)

// Status is what /api/v1/status gives. Offsets are -1 where they are not known.
type Status struct {
	Started     time.Time    `json:"started"`
	MemoryBytes int64        `json:"memory_bytes"`
	MemoryLimit int64        `json:"memory_limit_bytes"`
	Links       []LinkStatus `json:"links"`
}

// LinkStatus is one link.
type LinkStatus struct {
	Name       string            `json:"name"`
	From       string            `json:"from"`
	To         string            `json:"to"`
	Phase      string            `json:"phase"` // connecting, loading state, running, handing over, stopped
	Lanes      map[string]int    `json:"lanes"` // how many, by state
	LagRecords int64             `json:"lag_records"`
	LagSeconds float64           `json:"lag_seconds"` // the worst lane's
	Records    int64             `json:"records"`
	Bytes      int64             `json:"bytes"`
	Problems   map[string]string `json:"problems"` // by topic: why it is not, or not fully, copied
	Partitions []LaneStatus      `json:"partitions"`
}

// LaneStatus is one source partition.
type LaneStatus struct {
	Topic       string    `json:"topic"` // the source's name
	Partition   int32     `json:"partition"`
	Target      string    `json:"target"` // the target's topic
	State       string    `json:"state"`
	Reason      string    `json:"reason,omitempty"`
	Detail      string    `json:"detail,omitempty"`
	Cure        string    `json:"cure,omitempty"`
	Since       time.Time `json:"since"`
	SrcOffset   int64     `json:"src_offset"` // next to be copied: all before it is on the target
	DstOffset   int64     `json:"dst_offset"` // next on the target
	SrcEnd      int64     `json:"src_end"`    // what the link's isolation may read
	SrcStart    int64     `json:"src_start"`
	LagRecords  int64     `json:"lag_records"`
	LagSeconds  float64   `json:"lag_seconds"`
	HeldBytes   int64     `json:"held_bytes"`
	InFlight    int       `json:"in_flight"`
	Records     int64     `json:"records"`
	Bytes       int64     `json:"bytes"`
	ProducerID  int64     `json:"producer_id"`
	Epoch       int16     `json:"epoch"`
	Shared      bool      `json:"shared"`  // others write to the target partition too
	Witness     string    `json:"witness"` // what the position rests on after a doubt
	Doubled     int64     `json:"records_possibly_doubled"`
	SkippedLost int64     `json:"offsets_lost_to_retention"`
}

// Status takes a snapshot of all links.
func (p *Pipeline) Status() any { return p.Snapshot() }

// Snapshot is Status with its type.
func (p *Pipeline) Snapshot() Status {
	used, limit := p.Memory()
	s := Status{Started: p.started, MemoryBytes: used, MemoryLimit: limit, Links: []LinkStatus{}}
	now := time.Now()
	for _, l := range p.links {
		s.Links = append(s.Links, l.status(now))
	}
	return s
}

func (l *Link) status(now time.Time) LinkStatus {
	s := LinkStatus{Name: l.cfg.Name, From: l.cfg.From, To: l.cfg.To, Lanes: make(map[string]int), Problems: make(map[string]string), Partitions: []LaneStatus{}}
	l.mu.Lock()
	s.Phase = l.phase
	for topic, why := range l.problems {
		s.Problems[topic] = why
	}
	l.mu.Unlock()
	for _, r := range l.running() {
		x := r.status(l.cfg.Isolation, now)
		s.Lanes[x.State]++
		s.LagRecords += max(x.LagRecords, 0)
		s.LagSeconds = max(s.LagSeconds, x.LagSeconds)
		s.Records += x.Records
		s.Bytes += x.Bytes
		s.Partitions = append(s.Partitions, x)
	}
	slices.SortFunc(s.Partitions, func(a, b LaneStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return s
}

func (r *running) status(isolation Isolation, now time.Time) LaneStatus {
	st := r.lane.Status()
	x := LaneStatus{Topic: r.key.Topic, Partition: r.key.Partition, Target: r.target, State: st.State.String(), Reason: string(st.Reason),
		Detail: st.Detail, Cure: st.Reason.Info().Cure, Since: st.Since, SrcOffset: st.Src, DstOffset: st.Dst, SrcEnd: end(st, isolation),
		SrcStart: st.LogStart, HeldBytes: st.Held, InFlight: int(st.AtSink), Records: st.Counts.Records, Bytes: st.Counts.Bytes,
		ProducerID: st.ID.ProducerID, Epoch: st.ID.Epoch, Shared: st.Shared, Doubled: st.Counts.Doubled + r.twice, SkippedLost: st.Counts.Skipped}
	x.LagRecords, x.LagSeconds = r.lag(st, isolation, now)
	x.Witness = "sequence and end offset"
	if st.Shared {
		x.Witness = "headers in the target's log"
	}
	return x
}

// end is how far the isolation may read, -1 before the first fetch.
func end(st lane.Status, isolation Isolation) int64 {
	if isolation == ReadCommitted {
		return st.LastStable
	}
	return st.HighWatermark
}

// lag is how far the position is behind the source's end: in offsets (-1 before the first fetch), and in time since it
// last was there.
func (r *running) lag(st lane.Status, isolation Isolation, now time.Time) (records int64, seconds float64) {
	e := end(st, isolation)
	if e < 0 {
		return -1, now.Sub(r.started).Seconds()
	}
	if records = max(e-st.Src, 0); records == 0 {
		return 0, 0
	}
	since := st.CaughtUp
	if since.IsZero() {
		since = r.started
	}
	return records, now.Sub(since).Seconds()
}

// Ready says whether every link copies.
func (p *Pipeline) Ready() error {
	var errs []error
	for _, l := range p.links {
		l.mu.Lock()
		phase, lanes := l.phase, len(l.lanes)
		l.mu.Unlock()
		if phase != "running" {
			errs = append(errs, fmt.Errorf("link %s: %s", l.cfg.Name, phase))
		} else if lanes == 0 {
			errs = append(errs, fmt.Errorf("link %s: no partition to copy yet", l.cfg.Name))
		}
	}
	return errors.Join(errs...)
}
