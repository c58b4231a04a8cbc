package pipeline

import (
	"errors"
	"strings"
	"testing"
	"time"

	"kferry/partitioner"
	"kferry/pipeline/cluster"

	"github.com/google/go-cmp/cmp"
)

func pair() Config {
	c := DefaultConfig()
	for _, alias := range []string{"east", "west", "north"} {
		c.Clusters[alias] = cluster.Config{Alias: alias, Bootstrap: []string{alias + "-1:9092", alias + "-2:9092"}}
	}
	c.Links = []LinkConfig{DefaultLink("east", "west")}
	return c
}

func TestDefaultsAreValid(t *testing.T) {
	c := pair()
	c.Links = append(c.Links, DefaultLink("west", "east"), DefaultLink("west", "north"), DefaultLink("north", "east"))
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	f := func(change func(*Config), want ...string) {
		t.Helper()
		c := pair()
		change(&c)
		err := c.Validate()
		if len(want) == 0 {
			if err != nil {
				t.Errorf("got  %v\nwant nothing", err)
			}
			return
		}
		var problems Problems
		if !errors.As(err, &problems) {
			t.Errorf("got %v, want Problems", err)
			return
		}
		if diff := cmp.Diff(want, strings.Split(problems.Error(), "\n")); diff != "" {
			t.Error(diff)
		}
	}
	link := func(change func(*LinkConfig)) func(*Config) { return func(c *Config) { change(&c.Links[0]) } }

	f(func(c *Config) { *c = Config{} },
		"clusters: there is no cluster: name at least two, each with bootstrap",
		"links: there is no link: name at least one, with from and to",
		"memory: 0 bytes are too few: kferry needs at least 16MiB",
		`log.level: level "" is not known: debug, info, warn or error`,
		`log.format: format "" is not known: text or json`)
	f(func(c *Config) { c.Clusters["a b"] = cluster.Config{Alias: "a b", Bootstrap: []string{"x:1"}} },
		`clusters.a b: alias "a b": only letters, digits, _ and - are allowed, and at least one`)
	f(func(c *Config) { c.Clusters["south"] = cluster.Config{Alias: "east", Bootstrap: []string{"x:1"}} },
		`clusters.south: cluster "south" calls itself "east"`)
	f(func(c *Config) {
		c.Clusters["south"] = cluster.Config{Alias: "south", TLS: &cluster.TLS{Cert: "c"}, SASL: &cluster.SASL{Mechanism: "GSSAPI"}}
	},
		"clusters.south.bootstrap: at least one host:port is needed",
		"clusters.south.tls: cert and key belong together, one of them is missing",
		`clusters.south.sasl.mechanism: sasl mechanism "GSSAPI": only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are known`,
		"clusters.south.sasl.username: username is missing",
		"clusters.south.sasl.password: password is missing")
	f(func(c *Config) { c.Links = append(c.Links, c.Links[0]) },
		`links[1].name: link "east.west" exists already as links[0]: give each link a name of its own`)
	f(link(func(l *LinkConfig) { l.Name = "a b" }),
		`links[0].name: link name "a b": 1 to 200 letters, digits, '.', '_' and '-' are allowed`)
	f(link(func(l *LinkConfig) { l.From, l.To = "", "wset" }),
		"links[0].from: from is missing: it names the cluster that records go from",
		`links[0].to: there is no cluster "wset": the clusters are east, north, west`)
	f(link(func(l *LinkConfig) { l.To = "east" }),
		`links[0].to: from and to are both "east": a link needs two clusters, or allow_same_cluster: true and topics that are renamed`)
	f(func(c *Config) {
		c.Clusters["west"] = cluster.Config{Alias: "west", Bootstrap: []string{"x:1", "EAST-2:9092"}}
	}, "links[0].to: east and west have the broker east-2:9092 in common, so they are one cluster: correct the bootstrap, "+
		"or set allow_same_cluster: true and rename the topics")
	f(link(func(l *LinkConfig) { l.Topics = TopicFilter{} }),
		"links[0].topics.include: the list is empty, so nothing would be copied: name topics, or leave the key out for all of them")
	f(link(func(l *LinkConfig) {
		l.Topics.Include, l.Topics.Exclude = []string{"ok", "*.orders"}, []string{"("}
	}),
		`links[0].topics.include[1]: pattern "*.orders": at character 1: '*' has nothing to repeat (write .* for any text)`,
		`links[0].topics.exclude[0]: pattern "(": at character 1: '(' is not closed`)
	f(link(func(l *LinkConfig) {
		l.Naming.Kind, l.Topics.ExcludeInternal, l.Topics.Include = partitioner.Identity, false, []string{"__c.*offsets", "__my_app"}
	}), `links[0].topics: the link would write to "__consumer_offsets", which the target keeps for itself: exclude it, or leave out exclude_internal: false`)
	f(link(func(l *LinkConfig) {
		l.Topics.ExcludeInternal, l.Topics.Include = false, []string{"__my_app", "_schemas"}
	}))
	f(link(func(l *LinkConfig) { l.Separator = "" }),
		`links[0].separator: separator "": one or more of letters, digits, '.', '_' and '-' are allowed`)
	f(link(func(l *LinkConfig) { l.Separator = "/" }),
		`links[0].separator: separator "/": one or more of letters, digits, '.', '_' and '-' are allowed`)
	f(func(c *Config) {
		c.Clusters["east-1"] = cluster.Config{Alias: "east-1", Bootstrap: []string{"x:1"}}
		c.Links[0].Separator = "-"
	}, `links[0].separator: with separator "-" a topic of east-1 cannot be told from one of east: take another separator or alias`)
	f(link(func(l *LinkConfig) { l.Naming.Kind = "suffix" }),
		`links[0].naming: naming "suffix" is not known: prefix, identity or a rename map`)
	f(link(func(l *LinkConfig) { l.Naming.Kind = partitioner.Rename }),
		"links[0].naming.rename: the map is empty: name topics, or use naming: identity")
	f(link(func(l *LinkConfig) {
		l.Naming = partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"a": "x", "b": "x", "c": "d e"}}
	}),
		`links[0].naming.rename: "a" and "b" would both be written to "x": give each a target topic of its own`,
		`links[0].naming.rename: topic name "d e" has a character other than letters, digits, '.', '_' and '-'`)
	f(link(func(l *LinkConfig) { l.Start.Kind = "now" }),
		`links[0].start: start "now" is not known: earliest, latest or an RFC 3339 time`)
	f(link(func(l *LinkConfig) { l.Start.Kind = StartTime }),
		"links[0].start: the time 0001-01-01 00:00:00 +0000 UTC is before 1970")
	f(link(func(l *LinkConfig) { l.Isolation = "dirty" }),
		`links[0].isolation: isolation "dirty" is not known: read_committed or read_uncommitted`)
	f(link(func(l *LinkConfig) { l.Refresh = 999 * time.Millisecond }),
		"links[0].refresh: 999ms is too often: the brokers are asked for all topics each time, so at least 1s")
	f(func(c *Config) { c.MemoryBytes = MemoryBytesFloor - 1 },
		"memory: 16777215 bytes are too few: kferry needs at least 16MiB")
	f(func(c *Config) { c.AdminListen = "9464" },
		`admin.listen: "9464" is not host:port (address 9464: missing port in address)`)
	f(func(c *Config) { c.AdminListen = "" })
	f(func(c *Config) { c.Log = LogConfig{Level: "loud", Format: "xml"} },
		`log.level: level "loud" is not known: debug, info, warn or error`,
		`log.format: format "xml" is not known: text or json`)
}

// Which links may run in opposite directions. The rules behind it are partitioner.Overlap's, with a table of its own.
func TestRingsAreRefused(t *testing.T) {
	f := func(want string, change func(there, back *LinkConfig)) {
		t.Helper()
		c := pair()
		there, back := DefaultLink("east", "west"), DefaultLink("west", "east")
		change(&there, &back)
		c.Links = []LinkConfig{there, back}
		got := ""
		if err := c.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	ring := func(example string) string {
		return `links[0].naming: links "east.west", "west.east" form a ring: a topic such as "` + example + `" of east would come back to it; ` +
			"use naming: prefix with one separator on all of them, or include and exclude topics so that their names cannot meet"
	}
	identity := partitioner.NamingConfig{Kind: partitioner.Identity}
	f("", func(there, back *LinkConfig) {})
	f(ring("a"), func(there, back *LinkConfig) { there.Naming, back.Naming = identity, identity })
	f("", func(there, back *LinkConfig) {
		there.Naming, back.Naming = identity, identity
		there.Topics.Include, back.Topics.Include = []string{"orders.*"}, []string{"payments.*"}
	})
	f(ring("a"), func(there, back *LinkConfig) { there.Naming = identity })
	f(ring("a"), func(there, back *LinkConfig) { there.Separator = "_" })
	f(ring("orders"), func(there, back *LinkConfig) {
		there.Naming = partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"orders": "copy"}}
		back.Naming, there.Topics.Include = identity, []string{"orders"}
	})

	// three clusters, by identity
	c := pair()
	c.Links = nil
	for _, way := range []string{"east west", "west north", "north east"} {
		from, to, _ := strings.Cut(way, " ")
		l := DefaultLink(from, to)
		l.Naming = identity
		c.Links = append(c.Links, l)
	}
	want := `links[0].naming: links "east.west", "west.north", "north.east" form a ring: a topic such as "a" of east would come back to it; ` +
		"use naming: prefix with one separator on all of them, or include and exclude topics so that their names cannot meet"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	c.Links = c.Links[:2] // without the way home it is a chain
	if err := c.Validate(); err != nil {
		t.Error(err)
	}

	// a mesh has more rings than anybody wants to read
	c = pair()
	c.Links = nil
	for i := range 4 {
		alias := string(rune('a' + i))
		c.Clusters[alias] = cluster.Config{Alias: alias, Bootstrap: []string{alias + ":1"}}
		for j := range 4 {
			if l := DefaultLink(alias, string(rune('a'+j))); i != j {
				l.Naming = identity
				c.Links = append(c.Links, l)
			}
		}
	}
	lines := strings.Split(c.Validate().Error(), "\n")
	if len(lines) != 11 || lines[10] != "links: more links form rings: these are the first 10" {
		t.Errorf("%d problems, the last is %s", len(lines), lines[len(lines)-1])
	}

	// a mesh by prefix is safe, also with a link by identity into it
	for i := range c.Links {
		c.Links[i].Naming = DefaultLink("", "").Naming
	}
	into := DefaultLink("east", "a")
	into.Naming = identity
	c.Links = append(c.Links, into)
	if err := c.Validate(); err != nil {
		t.Error(err)
	}

	// within one cluster
	c = pair()
	l := DefaultLink("east", "east")
	l.AllowSameCluster, l.Naming = true, partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"orders": "copy"}}
	l.Topics.Include = []string{"orders"}
	c.Links = []LinkConfig{l}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Links[0].Topics.Include = []string{".*"}
	want = `links[0].naming: link "east.east" stays within one cluster and would read what it has written: a topic such as "a" would be copied again and again; ` +
		"rename the topics to names that the link does not include"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
