package pipeline

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
)

// Limits and defaults of a Config.
const (
	MemoryBytesFloor   = 16 << 20 // below it one large response does not fit
	MemoryBytesDefault = 1 << 30
	RefreshFloor       = time.Second
	RefreshDefault     = 10 * time.Second
	LinksMax           = 1_000
	linkNameChars      = 200 // a link's name is part of Kafka group names and metrics
)

// Config is all that a Pipeline is told. It is plain data: files, environment and flags are the command's business.
type Config struct {
	Clusters    map[string]cluster.Config // by alias
	Links       []LinkConfig
	MemoryBytes int64  // of records held, all links together
	AdminListen string // host:port of metrics, health and status; empty: none
	Log         LogConfig
}

// LinkConfig is one direction between two clusters.
type LinkConfig struct {
	Name             string // unique
	From, To         string // aliases
	Topics           TopicFilter
	Naming           partitioner.NamingConfig
	Separator        string // between alias and topic, for prefix names
	Start            Start
	Isolation        Isolation
	Refresh          time.Duration // how often topics and partitions are looked for
	OntoExisting     bool          // the target's topics may hold records of other writers
	AllowSameCluster bool          // from and to may be one cluster
}

// TopicFilter lists Java patterns over whole topic names; excludes win.
type TopicFilter struct {
	Include, Exclude []string
	ExcludeInternal  bool // leave out partitioner.Internal too
}

// Start is where a topic without a checkpoint begins.
type Start struct {
	Kind StartKind
	Time time.Time // for StartTime: from the first record at or after it
}

// StartKind is the kind of a Start.
type StartKind string

const (
	StartEarliest StartKind = "earliest"
	StartLatest   StartKind = "latest"
	StartTime     StartKind = "time"
)

// Isolation says whether records of open and aborted transactions are read (Kafka's isolation.level).
type Isolation string

const (
	ReadCommitted   Isolation = "read_committed"
	ReadUncommitted Isolation = "read_uncommitted"
)

// LogConfig is the form of the log.
type LogConfig struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// DefaultConfig has every default and neither clusters nor links.
func DefaultConfig() Config {
	return Config{
		Clusters:    map[string]cluster.Config{},
		MemoryBytes: MemoryBytesDefault,
		AdminListen: "127.0.0.1:9464",
		Log:         LogConfig{Level: "info", Format: "text"},
	}
}

// DefaultLink has every default of a link between two clusters.
func DefaultLink(from, to string) LinkConfig {
	return LinkConfig{
		Name:      from + "." + to,
		From:      from,
		To:        to,
		Topics:    TopicFilter{Include: []string{".*"}, ExcludeInternal: true},
		Naming:    partitioner.NamingConfig{Kind: partitioner.Prefix},
		Separator: ".",
		Start:     Start{Kind: StartEarliest},
		Isolation: ReadCommitted,
		Refresh:   RefreshDefault,
	}
}

// Aliases lists the clusters' names, sorted.
func (c Config) Aliases() []string { return slices.Sorted(maps.Keys(c.Clusters)) }

// Filter compiles the link's topic patterns.
func (l LinkConfig) Filter() (*partitioner.Filter, error) {
	return partitioner.NewFilter(l.Topics.Include, l.Topics.Exclude, l.Topics.ExcludeInternal)
}

// Namer gives the link's names; aliases are all that may appear in a topic's name.
func (l LinkConfig) Namer(aliases []string) *partitioner.Namer {
	return partitioner.NewNamer(l.Naming, l.From, l.To, l.Separator, aliases)
}

// Problem is one thing wrong with a Config.
type Problem struct {
	Path string // where, as in the YAML: links[0].topics.include[1]
	Text string // what, and the cure
}

func (p Problem) Error() string { return p.Path + ": " + p.Text }

// Problems is everything wrong with a Config, one line each.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

func (p *Problems) add(path, format string, args ...any) {
	*p = append(*p, Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

var linkNameShape = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Validate reports everything that is wrong with c; the error is of type Problems. It opens no file and no connection.
func (c Config) Validate() error {
	var p Problems
	c.checkClusters(&p)
	if len(c.Links) == 0 {
		p.add("links", "there is no link: name at least one, with from and to")
	}
	if len(c.Links) > LinksMax {
		p.add("links", "there are %d links, the limit is %d in one process", len(c.Links), LinksMax)
	}
	names := map[string]int{}
	var sound []int
	for i, l := range c.Links[:min(len(c.Links), LinksMax)] {
		path := fmt.Sprintf("links[%d]", i)
		before := len(p)
		if c.checkLink(&p, path, l); len(p) == before {
			sound = append(sound, i)
		}
		if first, twice := names[l.Name]; twice {
			p.add(path+".name", "link %q exists already as links[%d]: give each link a name of its own", l.Name, first)
		} else {
			names[l.Name] = i
		}
	}
	if c.MemoryBytes < MemoryBytesFloor {
		p.add("memory", "%d bytes are too few: kferry needs at least 16MiB", c.MemoryBytes)
	}
	if c.AdminListen != "" {
		if err := checkListen(c.AdminListen); err != nil {
			p.add("admin.listen", "%q is not host:port (%v)", c.AdminListen, err)
		}
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		p.add("log.level", "level %q is not known: debug, info, warn or error", c.Log.Level)
	}
	if !slices.Contains([]string{"text", "json"}, c.Log.Format) {
		p.add("log.format", "format %q is not known: text or json", c.Log.Format)
	}
	c.checkRings(&p, sound)
	if len(p) == 0 {
		return nil
	}
	return p
}
