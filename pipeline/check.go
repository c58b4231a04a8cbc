package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"kferry/pipeline/cluster"
	"kferry/pipeline/control"
)

// checkReach is how long a cluster may take to be reached.
const checkReach = 30 * time.Second

// Levels of a Finding.
const (
	LevelOK   = "ok"   // as it should be, or good to know
	LevelWarn = "warn" // copies, and something will not be as on the source, or may stop later
	LevelFail = "fail" // would not start, or not copy
)

// Finding is one thing that Check has to say. Link is empty for what concerns a cluster, Topic (the source's name) for what
// concerns a whole link.
type Finding struct {
	Level string `json:"level"`
	Link  string `json:"link"`
	Topic string `json:"topic"`
	Text  string `json:"text"`
	Cure  string `json:"cure,omitempty"`
	// Unreachable says that it fails for want of an answer, which another try may get.
	Unreachable bool `json:"unreachable,omitempty"`
}

// CheckReport is what Check found: clusters first, then link by link, what fails before what is fine.
type CheckReport struct {
	Findings []Finding `json:"findings"`
}

// Passes says whether nothing stands in the way that an operator has to mend; Reached, whether every cluster answered.
func (r CheckReport) Passes() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level == LevelFail && !f.Unreachable })
}

func (r CheckReport) Reached() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Unreachable })
}

// Check reaches every cluster, plans every link's topics, and says before a byte moves what will not pass and what will not
// be as on the source. It writes nothing. The error is ctx's only.
func (p *Pipeline) Check(ctx context.Context) (CheckReport, error) {
	c := &check{now: time.Now(), findings: []Finding{}}
	reached := c.reach(ctx, p.clusters)
	for _, l := range p.links {
		if !reached[l.cfg.From] || !reached[l.cfg.To] {
			continue // said already
		}
		in := &linkCheck{check: c, link: l}
		if err := in.run(ctx); err != nil && ctx.Err() == nil {
			in.unanswered("", err)
		}
	}
	if ctx.Err() != nil {
		return CheckReport{}, context.Cause(ctx)
	}
	order := []string{LevelFail, LevelWarn, LevelOK}
	links := map[string]int{"": 0}
	for i, l := range p.links {
		links[l.cfg.Name] = i + 1
	}
	slices.SortStableFunc(c.findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(links[a.Link], links[b.Link]), cmp.Compare(slices.Index(order, a.Level), slices.Index(order, b.Level)))
	})
	return CheckReport{c.findings}, nil
}

// check collects findings.
type check struct {
	now      time.Time
	findings []Finding
}

// reach asks every cluster once, all at the same time.
func (c *check) reach(ctx context.Context, clusters map[string]*cluster.Cluster) map[string]bool {
	ctx, cancel := context.WithTimeoutCause(ctx, checkReach, cluster.ErrTimeout)
	defer cancel()
	var mu sync.Mutex
	errs := make(map[string]error)
	var wg sync.WaitGroup
	for alias, x := range clusters {
		wg.Go(func() {
			err := x.Refresh(ctx)
			mu.Lock()
			errs[alias] = err
			mu.Unlock()
		})
	}
	wg.Wait()
	reached := make(map[string]bool)
	for _, alias := range slices.Sorted(maps.Keys(errs)) {
		if err := errs[alias]; err != nil {
			c.findings = append(c.findings, Finding{Level: LevelFail, Text: err.Error(), Unreachable: !cluster.Fatal(err)})
			continue
		}
		t := clusters[alias].Topology()
		reached[alias] = true
		c.findings = append(c.findings, Finding{Level: LevelOK,
			Text: fmt.Sprintf("%s: reached: cluster id %s, brokers: %d, topics that kferry may see: %d", alias, t.ClusterID, len(t.Brokers), len(t.Topics))})
	}
	return reached
}

// linkCheck is the check of one link.
type linkCheck struct {
	*check
	link    *Link
	started bool // the link has run before
	topics  []control.Topic
	access  access
}

func (c *linkCheck) add(level, topic, cure, format string, args ...any) {
	c.findings = append(c.findings, Finding{Level: level, Link: c.link.cfg.Name, Topic: topic, Text: fmt.Sprintf(format, args...), Cure: cure})
}

// unanswered is a finding of an error: refused for good, or worth another try.
func (c *linkCheck) unanswered(topic string, err error) {
	f := Finding{Level: LevelFail, Link: c.link.cfg.Name, Topic: topic, Text: err.Error()}
	f.Unreachable = !cluster.Fatal(err) && !errors.Is(err, ErrRefused) && !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed)
	c.findings = append(c.findings, f)
}

// run looks at the link's topics. The error is that of a cluster that does not answer any more, or of a link that is refused.
func (c *linkCheck) run(ctx context.Context) error {
	l := c.link
	if err := l.connect(ctx); err != nil {
		return err
	}
	toID, err := l.to.ID(ctx)
	if err != nil {
		return err
	}
	topics, err := l.control(ctx, toID)
	if err != nil {
		return err
	}
	planned, err := topics.Plan(ctx)
	if err != nil {
		return err
	}
	c.plan(planned)
	store, err := l.readState(ctx)
	if err != nil {
		c.unanswered("", err)
	} else if store != nil {
		_, c.started = store.Link(l.cfg.Name)
		store.Close()
	}
	if err := c.onto(ctx); err != nil {
		c.unanswered("", err)
	}
	if c.access, err = readAccess(ctx, l, c.topics); err != nil {
		return err
	}
	c.permissions()
	return c.settings(ctx)
}

// plan keeps the topics that would be copied and says what of the others.
func (c *linkCheck) plan(planned []control.Topic) {
	partitions := int32(0)
	for _, t := range planned {
		switch {
		case errors.Is(t.Err, control.ErrNotForwarded):
			c.add(LevelOK, t.Source, "", "%v", t.Err)
			continue
		case t.Err != nil:
			cure := ""
			if errors.Is(t.Err, kerr.TopicAuthorizationFailed) && t.Target == "" {
				cure = fmt.Sprintf("grant DESCRIBE and READ on the topic to kferry's principal on %s", c.link.cfg.From)
			}
			c.add(LevelFail, t.Source, cure, "would not be copied: %v", t.Err)
			continue
		}
		c.topics = append(c.topics, t)
		partitions += t.SourcePartitions
		switch {
		case t.TargetPartitions == 0:
		case t.TargetPartitions < t.SourcePartitions:
			c.add(LevelOK, t.Source, "", "%s has %d partitions and the source %d: it would be given the missing ones", t.Target, t.TargetPartitions, t.SourcePartitions)
		case t.TargetPartitions > t.SourcePartitions:
			c.add(LevelOK, t.Source, "", "%s has %d partitions and the source %d: the others stay empty, and keys lie in other partitions than a producer on the target would choose",
				t.Target, t.TargetPartitions, t.SourcePartitions)
		}
	}
	if len(c.topics) == 0 {
		c.add(LevelWarn, "", "look at topics.include and topics.exclude, and at DESCRIBE on the topics: what kferry may not describe it does not see",
			"nothing would be copied: no topic on %s that the filter takes can be", c.link.cfg.From)
		return
	}
	c.add(LevelOK, "", "", "would copy %s with %s", count(len(c.topics), "topic"), count(int(partitions), "partition"))
}

// onto finds targets that hold records which no state tells of.
func (c *linkCheck) onto(ctx context.Context) error {
	if c.started || c.link.cfg.OntoExisting || len(c.topics) == 0 {
		return nil
	}
	full, err := control.NotEmpty(ctx, c.link.to.Client(), c.topics)
	if err != nil || len(full) == 0 {
		return err
	}
	c.add(LevelFail, "", "empty or delete them, exclude them, or set onto_existing: true",
		"the link has no state on %s, and %s there: a copy would append to them", c.link.cfg.To, holdRecords(full))
	return nil
}

// permissions says which grants are missing, as far as the clusters tell.
func (c *linkCheck) permissions() {
	from, to := c.link.cfg.From, c.link.cfg.To
	grant := func(on string, operations ...string) string {
		return fmt.Sprintf("grant %s on the topic to kferry's principal on %s", strings.Join(operations, ", "), on)
	}
	for _, t := range c.topics {
		if !c.access.source[t.Source].may(opRead) {
			c.add(LevelFail, t.Source, grant(from, "READ"), "kferry may not read it on %s", from)
		}
		if t.TargetPartitions == 0 {
			continue
		}
		if !c.access.target[t.Target].may(opWrite) {
			c.add(LevelFail, t.Source, grant(to, "WRITE"), "kferry may not write %s on %s", t.Target, to)
		}
		if t.TargetPartitions < t.SourcePartitions && !c.access.target[t.Target].may(opAlter) {
			c.add(LevelFail, t.Source, grant(to, "ALTER"), "kferry may not add partitions to %s on %s", t.Target, to)
		}
	}
	missing := slices.ContainsFunc(c.topics, func(t control.Topic) bool { return t.TargetPartitions == 0 })
	name := c.access.stateTopic
	switch own := c.access.target[name]; {
	case !own.exists:
		missing = true
	case !own.may(opRead) || !own.may(opWrite):
		c.add(LevelFail, "", fmt.Sprintf("grant READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on it to kferry's principal on %s", to),
			"kferry may not read and write its state topic %s on %s", name, to)
	}
	if missing && !c.access.mayCreate {
		c.add(LevelWarn, "", fmt.Sprintf("grant CREATE on the topics, by prefix or one by one, or on the cluster, to kferry's principal on %s", to),
			"kferry has no grant for the whole cluster %s to create topics: where it has none for those topics either, creating them fails", to)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
