package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"kferry/partitioner"
)

// brokersOwn are topics that brokers keep for themselves; whoever writes there breaks the cluster.
var brokersOwn = [...]string{"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}

// ringsShown bounds the sentences about rings: many links of one kind form very many.
const ringsShown = 10

func (c Config) checkClusters(p *Problems) {
	if len(c.Clusters) == 0 {
		p.add("clusters", "there is no cluster: name at least two, each with bootstrap")
	}
	for _, alias := range c.Aliases() {
		path := "clusters." + alias
		side := c.Clusters[alias]
		if side.Alias != alias {
			p.add(path, "cluster %q calls itself %q", alias, side.Alias)
			continue
		}
		err := side.Validate()
		joined, ok := err.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		for _, err := range joined.Unwrap() {
			*p = append(*p, clusterProblem(path, err.Error()))
		}
	}
}

// clusterProblem finds the value that a sentence of cluster.Config.Validate is about: it begins with the key's name.
func clusterProblem(path, sentence string) Problem {
	for _, at := range []struct{ begins, key string }{
		{"sasl mechanism", ".sasl.mechanism"}, {"sasl: username", ".sasl.username"}, {"sasl: password", ".sasl.password"},
		{"sasl token_endpoint", ".sasl.token_endpoint"}, {"sasl token_command", ".sasl.token_command"}, {"sasl extensions", ".sasl.extensions"},
		{"sasl: client_id is", ".sasl.client_id"}, {"sasl: client_secret is", ".sasl.client_secret"},
		{"sasl", ".sasl"}, {"tls", ".tls"}, {"bootstrap", ".bootstrap"},
	} {
		if strings.HasPrefix(sentence, at.begins) {
			path += at.key
			break
		}
	}
	if key, rest, ok := strings.Cut(sentence, ": "); ok && slices.Contains([]string{"sasl", "tls", "bootstrap"}, key) {
		sentence = rest
	}
	return Problem{Path: path, Text: sentence}
}

func (c Config) checkLink(p *Problems, path string, l LinkConfig) {
	if !linkNameShape.MatchString(l.Name) || len(l.Name) > linkNameChars {
		p.add(path+".name", "link name %q: 1 to %d letters, digits, '.', '_' and '-' are allowed", l.Name, linkNameChars)
	}
	for _, end := range []struct{ key, alias string }{{"from", l.From}, {"to", l.To}} {
		if end.alias == "" {
			p.add(path+"."+end.key, "%s is missing: it names the cluster that records go %s", end.key, end.key)
		} else if _, ok := c.Clusters[end.alias]; !ok && len(c.Clusters) > 0 {
			p.add(path+"."+end.key, "there is no cluster %q: the clusters are %s", end.alias, strings.Join(c.Aliases(), ", "))
		}
	}
	if !l.AllowSameCluster && l.From != "" {
		if l.From == l.To {
			p.add(path+".to", "from and to are both %q: a link needs two clusters, or allow_same_cluster: true and topics that are renamed", l.To)
		} else if addr := c.sharedBootstrap(l.From, l.To); addr != "" {
			p.add(path+".to", "%s and %s have the broker %s in common, so they are one cluster: correct the bootstrap, "+
				"or set allow_same_cluster: true and rename the topics", l.From, l.To, addr)
		}
	}
	checkTopics(p, path, l)
	checkNaming(p, path, l, c.Aliases())
	switch l.Start.Kind {
	case StartEarliest, StartLatest:
	case StartTime:
		if l.Start.Time.UnixMilli() < 0 {
			p.add(path+".start", "the time %v is before 1970", l.Start.Time)
		}
	default:
		p.add(path+".start", "start %q is not known: earliest, latest or an RFC 3339 time", l.Start.Kind)
	}
	if l.Isolation != ReadCommitted && l.Isolation != ReadUncommitted {
		p.add(path+".isolation", "isolation %q is not known: read_committed or read_uncommitted", l.Isolation)
	}
	if l.Refresh < RefreshFloor {
		p.add(path+".refresh", "%v is too often: the brokers are asked for all topics each time, so at least 1s", l.Refresh)
	}
}

func checkTopics(p *Problems, path string, l LinkConfig) {
	if len(l.Topics.Include) == 0 {
		p.add(path+".topics.include", "the list is empty, so nothing would be copied: name topics, or leave the key out for all of them")
	}
	checkPatterns(p, path+".topics.include", l.Topics.Include)
	checkPatterns(p, path+".topics.exclude", l.Topics.Exclude)
	filter, err := l.Filter()
	if err != nil || l.Naming.Kind == partitioner.Prefix {
		return
	}
	namer := l.Namer(nil)
	for _, topic := range append(brokersOwn[:], "kferry-state."+l.From+".internal") {
		if target, ok := namer.Target(topic); ok && target == topic {
			if taken, _ := filter.Accepts(topic); taken {
				p.add(path+".topics", "the link would write to %q, which the target keeps for itself: exclude it, or leave out exclude_internal: false", topic)
			}
		}
	}
}

func checkPatterns(p *Problems, path string, patterns []string) {
	for i, text := range patterns {
		if _, err := partitioner.CompilePattern(text); err != nil {
			p.add(fmt.Sprintf("%s[%d]", path, i), "%v", err)
		}
	}
}

func checkNaming(p *Problems, path string, l LinkConfig, aliases []string) {
	switch l.Naming.Kind {
	case partitioner.Prefix:
		if err := partitioner.CheckTopic("x" + l.Separator + "x"); err != nil || l.Separator == "" {
			p.add(path+".separator", "separator %q: one or more of letters, digits, '.', '_' and '-' are allowed", l.Separator)
			return
		}
		// "us" and "us-east" with "-": us-east-orders would be a copy from either.
		for _, short := range aliases {
			for _, long := range aliases {
				if strings.HasPrefix(long, short+l.Separator) {
					p.add(path+".separator", "with separator %q a topic of %s cannot be told from one of %s: take another separator or alias", l.Separator, long, short)
				}
			}
		}
	case partitioner.Identity:
	case partitioner.Rename:
		from := map[string]string{}
		if len(l.Naming.Rename) == 0 {
			p.add(path+".naming.rename", "the map is empty: name topics, or use naming: identity")
		}
		for _, source := range slices.Sorted(maps.Keys(l.Naming.Rename)) {
			target := l.Naming.Rename[source]
			for _, topic := range []string{source, target} {
				if err := partitioner.CheckTopic(topic); err != nil {
					p.add(path+".naming.rename", "%v", err)
				}
			}
			if first, twice := from[target]; twice {
				p.add(path+".naming.rename", "%q and %q would both be written to %q: give each a target topic of its own", first, source, target)
			}
			from[target] = source
		}
	default:
		p.add(path+".naming", "naming %q is not known: prefix, identity or a rename map", l.Naming.Kind)
	}
}

// checkRings refuses links whose names let a cluster's own records come back to it. It looks at links that are right in themselves.
//
// Prefix names all around are safe. So are names that cannot meet, which the filters decide. All else is refused, also where the
// ring would end by itself: with east→west by identity and west→east by prefix, east's orders would come home as west.orders.
func (c Config) checkRings(p *Problems, sound []int) {
	var hops []partitioner.Hop
	for _, i := range sound {
		l := c.Links[i]
		filter, err := l.Filter()
		if err != nil {
			panic("BUG: a sound link has a wrong filter: " + err.Error())
		}
		hops = append(hops, partitioner.Hop{From: l.From, To: l.To, Filter: filter, Naming: l.Naming, Separator: l.Separator})
	}
	rings, ok := partitioner.Rings(hops, c.node, func(h partitioner.Hop) bool {
		return h.Naming.Kind != partitioner.Prefix || h.Separator != hops[0].Separator || c.node(h.From) == c.node(h.To)
	})
	if !ok {
		p.add("links", "the links form too many rings to check their topic names: use naming: prefix with one separator on all of them")
		return
	}
	reported := map[string]bool{}
	for _, ring := range rings {
		var way []partitioner.Hop
		var names []string
		for _, h := range ring {
			way = append(way, hops[h])
			names = append(names, strconv.Quote(c.Links[sound[h]].Name))
		}
		if len(ring) == 1 {
			way = append(way, way[0]) // within one cluster: what the link writes must not be read by it again
		}
		key := strings.Join(slices.Sorted(slices.Values(names)), " ")
		if reported[key] {
			continue
		}
		example, overlap := partitioner.Overlap(way, c.Aliases())
		if !overlap {
			continue
		}
		if reported[key] = true; len(reported) > ringsShown {
			p.add("links", "more links form rings: these are the first %d", ringsShown)
			return
		}
		what := "some topics"
		if example != "" {
			what = fmt.Sprintf("a topic such as %q", example)
		}
		path := fmt.Sprintf("links[%d].naming", sound[ring[0]])
		if len(ring) == 1 {
			p.add(path, "link %s stays within one cluster and would read what it has written: %s would be copied again and again; "+
				"rename the topics to names that the link does not include", names[0], what)
			continue
		}
		p.add(path, "links %s form a ring: %s of %s would come back to it; use naming: prefix with one separator on all of them, "+
			"or include and exclude topics so that their names cannot meet", strings.Join(names, ", "), what, way[0].From)
	}
}

// node gives one name for all aliases of a cluster, as far as the configuration tells.
func (c Config) node(alias string) string {
	least := alias
	for _, other := range c.Aliases() {
		same := c.sharedBootstrap(alias, other) != "" || slices.ContainsFunc(c.Links, func(l LinkConfig) bool {
			return l.AllowSameCluster && (l.From == alias && l.To == other || l.From == other && l.To == alias)
		})
		if same {
			least = min(least, other)
		}
	}
	if least != alias {
		return c.node(least) // one cluster may have more than two aliases
	}
	return least
}

// sharedBootstrap gives an address that both clusters name, or "".
func (c Config) sharedBootstrap(a, b string) string {
	for _, addr := range c.Clusters[a].Bootstrap {
		for _, other := range c.Clusters[b].Bootstrap {
			if strings.EqualFold(addr, other) {
				return addr
			}
		}
	}
	return ""
}

func checkListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port is not in 0..65535")
	}
	return nil
}
