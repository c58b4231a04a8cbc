package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
	"kferry/pipeline/state"
)

// follow keeps the lanes in step with the source's topics until the link is to stop, in job mode until all is copied.
func (l *Link) follow(ctx context.Context, j **job) error {
	refresh := time.NewTimer(0)
	defer refresh.Stop()
	check := time.NewTicker(200 * time.Millisecond)
	defer check.Stop()
	synced := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.p.stopping.Done():
			return nil
		case <-refresh.C:
			wait := l.cfg.Refresh
			if err := l.sync(ctx, !synced); err == nil {
				if !synced {
					l.p.tidy()
				}
				synced = true
			} else if ctx.Err() == nil && l.p.stopping.Err() == nil {
				if errors.Is(err, ErrRefused) || cluster.Fatal(err) {
					return fmt.Errorf("link %s: %w", l.cfg.Name, err)
				}
				l.log.Warn("cannot follow the topics, trying again", "err", err)
				wait = min(wait, retryEvery)
			}
			refresh.Reset(wait)
		case <-check.C:
			if !l.p.opts.UntilCaughtUp || !synced {
				continue
			}
			if *j == nil {
				*j = newJob(l)
			}
			if (*j).done(ctx) {
				return nil
			}
		}
	}
}

// sync creates and grows target topics and starts lanes for partitions that have none.
func (l *Link) sync(ctx context.Context, first bool) error {
	ctx, cancel := l.whileWanted(ctx, 2*time.Minute)
	defer cancel()
	topics, err := l.topics.Sync(ctx)
	if err != nil {
		return err
	}
	if err := l.from.Refresh(ctx); err != nil {
		return err
	}
	if err := l.to.Refresh(ctx); err != nil {
		return err
	}
	if fresh := l.fresh(topics); len(fresh) > 0 {
		err = l.start(ctx, fresh)
	}
	l.began.Do(l.source.Started)
	if err != nil {
		return err
	}
	if first {
		l.met = make(map[cluster.Place]bool) // from now on, what is found was born since
		return l.store.PutLink(ctx, l.cfg.Name, l.record)
	}
	return nil
}

// fresh lists the partitions that need a lane and notes what stands in a topic's way.
func (l *Link) fresh(topics []control.Topic) []*running {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fresh []*running
	problems := make(map[string]string)
	l.meet(topics)
	for i := range topics {
		t := &topics[i]
		switch {
		case errors.Is(t.Err, control.ErrNotForwarded):
			l.log.Debug("topic not forwarded", "topic", t.Source, "why", t.Err)
			continue
		case t.Err != nil:
			problems[t.Source] = t.Err.Error()
		}
		if other := l.earlier(t); other != "" {
			problems[t.Source] = fmt.Sprintf("link %s copies it to %s on %s too: this link leaves it alone", other, t.Target, l.cfg.To)
			continue
		}
		if t.Target == "" || t.TargetPartitions == 0 {
			continue
		}
		if _, err := partitioner.NewMapper(t.Source, t.SourcePartitions, t.TargetPartitions); err != nil && t.Err == nil {
			problems[t.Source] = err.Error()
		}
		for p := range min(t.SourcePartitions, t.TargetPartitions) {
			key := state.LaneKey{Link: l.cfg.Name, Topic: t.Source, TopicID: t.SourceID, Partition: p}
			at := cluster.Place{Topic: t.Source, Partition: p}
			if l.lanes[at] != nil {
				continue // also when the id is another one: the source tells that lane
			}
			fresh = append(fresh, &running{key: key, target: t.Target, met: l.met[at], started: time.Now()})
		}
	}
	for topic, why := range problems {
		l.complain(topic, why)
	}
	l.problems = problems
	if len(topics) == 0 && len(l.lanes) == 0 {
		l.complain("", fmt.Sprintf("no topic of %s matches topics.include %q", l.cfg.From, l.cfg.Topics.Include))
	}
	return fresh
}

// complain logs what is wrong with a topic, once for each wrong.
func (l *Link) complain(topic, why string) {
	if l.said[topic] == why {
		return
	}
	l.said[topic] = why
	if topic == "" {
		l.log.Warn("nothing to copy", "why", why)
		return
	}
	l.log.Error("topic not copied as it should be", "topic", topic, "err", why)
}

// earlier names a link before this one that copies a topic to the same place: two of them would double every record.
func (l *Link) earlier(t *control.Topic) string {
	for _, other := range l.p.links {
		if other == l {
			return ""
		}
		if other.cfg.From != l.cfg.From || other.cfg.To != l.cfg.To || t.Target == "" {
			continue
		}
		if ok, err := other.filter.Accepts(t.Source); !ok || err != nil {
			continue
		}
		if target, ok := other.cfg.Namer(l.p.cfg.Aliases()).Target(t.Source); ok && target == t.Target {
			return other.cfg.Name
		}
	}
	return ""
}

// meet notes, once, the partitions that stand at the link's start. The first round may stay open for long, with lanes running, while
// one partition does not answer: what is born meanwhile is new.
func (l *Link) meet(topics []control.Topic) {
	if l.met != nil {
		return
	}
	l.met = make(map[cluster.Place]bool)
	for _, t := range topics {
		for p := range t.SourcePartitions {
			l.met[cluster.Place{Topic: t.Source, Partition: p}] = true
		}
	}
}

// blame notes the topics that may not be asked about as problems. What another try cures comes back as an error.
func (l *Link) blame(failed map[string]error) (again error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, err := range failed {
		if !errors.Is(err, kerr.TopicAuthorizationFailed) {
			again = err
			continue
		}
		l.complain(topic, err.Error())
		l.problems[topic] = err.Error()
	}
	return again
}
