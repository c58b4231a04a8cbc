package pipeline

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"kferry/pipeline/lane"
)

// WriteMetrics writes all metrics in Prometheus' text format. Those of partitions are made from the lanes' snapshots here,
// so ten thousand quiet lanes cost nothing between scrapes. Names are listed in docs/metrics.md.
func (p *Pipeline) WriteMetrics(w io.Writer) {
	used, limit := p.Memory()
	gauge(w, `kferry_memory_bytes`, used)
	gauge(w, `kferry_memory_limit_bytes`, limit)
	gauge(w, `kferry_memory_idle_bytes`, p.pool.Free())
	gauge(w, `kferry_credit_used_bytes`, p.credit.Used())
	gauge(w, `kferry_credit_waiting_fetches`, p.credit.Waiting())
	for alias, c := range p.clusters {
		c.Requests(func(api string, sent int64) {
			counter(w, fmt.Sprintf(`kferry_requests_total{cluster=%q,api=%q}`, alias, api), sent)
		})
	}
	for alias, s := range p.sinks {
		n := s.Stats()
		label := fmt.Sprintf(`{cluster=%q}`, alias)
		gauge(w, `kferry_produce_inflight_bytes`+label, int64(n.Flying))
		gauge(w, `kferry_produce_inflight_requests`+label, int64(n.Requests))
		gauge(w, `kferry_produce_budget_bytes`+label, int64(n.Budget))
		gauge(w, `kferry_produce_queued_bytes`+label, int64(n.Queued))
		gauge(w, `kferry_produce_connections`+label, int64(n.Conns))
		gauge(w, `kferry_produce_connections_mute`+label, int64(n.Mute))
		counter(w, `kferry_produce_throttle_milliseconds_total`+label, s.ThrottleMillis())
	}
	for key, s := range p.sources {
		n := s.Stats()
		label := fmt.Sprintf(`{cluster=%q,isolation=%q}`, key.alias, key.isolation)
		counter(w, `kferry_fetch_responses_total`+label, n.Fetches)
		counter(w, `kferry_fetch_bytes_total`+label, n.Bytes)
		counter(w, `kferry_fetch_throttle_milliseconds_total`+label, n.ThrottleMillis)
		gauge(w, `kferry_fetch_connections`+label, int64(n.Conns))
		gauge(w, `kferry_fetch_partitions`+label, int64(n.Partitions))
		gauge(w, `kferry_fetch_feeds`+label, int64(n.Feeds))
		gauge(w, `kferry_fetch_partitions_without_leader`+label, int64(n.Homeless))
	}
	now := time.Now()
	for _, l := range p.links {
		l.writeMetrics(w, now)
	}
	metrics.WriteProcessMetrics(w)
}

func (l *Link) writeMetrics(w io.Writer, now time.Time) {
	link := fmt.Sprintf(`{link=%q}`, l.cfg.Name)
	l.mu.Lock()
	problems := len(l.problems)
	store := l.store
	l.mu.Unlock()
	gauge(w, `kferry_topics_with_problems`+link, int64(problems))
	age := 0.0
	if store != nil {
		if since := store.OldestMark(); !since.IsZero() {
			age = now.Sub(since).Seconds()
		}
	}
	metrics.WriteGaugeFloat64(w, `kferry_checkpoint_age_seconds`+link, age)

	type place struct {
		state  lane.State
		reason lane.Reason
	}
	lanes := make(map[place]int64)
	var queued, window int64
	for _, s := range lane.States() {
		lanes[place{s, lane.NoReason}] = 0
	}
	for _, r := range l.running() {
		st := r.lane.Status()
		lanes[place{st.State, st.Reason}]++
		queued, window = queued+int64(st.Queued), window+int64(st.Window)
		labels := fmt.Sprintf(`{link=%q,topic=%q,partition="%d"}`, l.cfg.Name, r.key.Topic, r.key.Partition)
		counter(w, `kferry_records_total`+labels, st.Counts.Records)
		counter(w, `kferry_batches_total`+labels, st.Counts.Batches)
		counter(w, `kferry_bytes_total`+labels, st.Counts.Bytes)
		records, seconds := r.lag(st, l.cfg.Isolation, now)
		if records >= 0 {
			gauge(w, `kferry_lag_records`+labels, records)
		}
		metrics.WriteGaugeFloat64(w, `kferry_lag_seconds`+labels, seconds)
		for d, n := range st.Counts.Dropped {
			if n > 0 {
				counter(w, dropped(labels, lane.Drop(d)), n)
			}
		}
		for r, n := range st.Counts.Recoded {
			if n > 0 {
				counter(w, `kferry_batches_recoded_total`+with(labels, "reason", lane.Recoded(r).String()), n)
			}
		}
		if n := st.Counts.Skipped; n > 0 {
			counter(w, `kferry_losses_records_total`+with(labels, "kind", "retention"), n)
		}
		if n := st.Counts.Doubled + r.twice; n > 0 {
			counter(w, `kferry_losses_records_total`+with(labels, "kind", "possibly-doubled"), n)
		}
		if n := st.Counts.Looks; n > 0 {
			counter(w, `kferry_lane_lookups_total`+labels, n)
		}
		if n := st.Counts.Resent; n > 0 {
			counter(w, `kferry_lane_resent_batches_total`+labels, n)
		}
		if n := st.Counts.Foreign; n > 0 {
			counter(w, `kferry_lane_foreign_offsets_total`+labels, n)
		}
		if st.Held > 0 {
			gauge(w, `kferry_lane_held_bytes`+labels, st.Held)
		}
	}
	gauge(w, `kferry_lanes_queued_batches`+link, queued)
	gauge(w, `kferry_lanes_window_batches`+link, window)
	for p, n := range lanes {
		gauge(w, fmt.Sprintf(`kferry_lanes{link=%q,state=%q,reason=%q}`, l.cfg.Name, p.state, string(p.reason)), n)
	}
}

func dropped(labels string, d lane.Drop) string {
	return `kferry_batches_dropped_total` + with(labels, "reason", d.String())
}

// with adds a label to a rendered set.
func with(labels, name, value string) string {
	return labels[:len(labels)-1] + "," + name + "=" + strconv.Quote(value) + "}"
}

func gauge(w io.Writer, name string, v int64) { metrics.WriteGaugeUint64(w, name, uint64(max(v, 0))) }
func counter(w io.Writer, name string, v int64) {
	metrics.WriteCounterUint64(w, name, uint64(max(v, 0)))
}
