package pipeline

import (
	"cmp"
	"slices"
	"strings"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
	"kferry/pipeline/state"
)

// Grant is what one cluster has to allow kferry's principal, as Kafka's authorizers name it.
type Grant struct {
	Cluster    string   `json:"cluster"`   // the alias
	Principal  string   `json:"principal"` // as in User:kferry; a word in capitals stands for what the configuration does not tell
	Topic      string   `json:"topic"`     // "*": all; empty: the grant is on the cluster itself
	Prefixed   bool     `json:"prefixed"`  // Topic is how names begin
	Operations []string `json:"operations"`
}

// Grants is the least that the links need, by cluster; docs/operations.md says what each is for. It asks nobody. Authorizers know
// names and prefixes only, so a pattern counts as the prefix that all its names have.
func (c Config) Grants() []Grant {
	var all []Grant
	add := func(alias string, g Grant, operations ...string) {
		g.Cluster, g.Principal = alias, principal(c.Clusters[alias])
		i := slices.IndexFunc(all, func(o Grant) bool { return o.Cluster == alias && o.Topic == g.Topic && o.Prefixed == g.Prefixed })
		if i < 0 {
			i, all = len(all), append(all, g)
		}
		for _, op := range operations {
			if !slices.Contains(all[i].Operations, op) {
				all[i].Operations = append(all[i].Operations, op)
			}
		}
	}
	for _, l := range c.Links {
		target := func(g Grant) { add(l.To, g, "Read", "Write", "Create", "Alter", "DescribeConfigs") }
		for _, pattern := range l.Topics.Include {
			g := named(pattern)
			add(l.From, g, "Read", "DescribeConfigs")
			if l.Naming.Kind == partitioner.Prefix {
				begin := l.From + l.Separator
				if g.Topic == "*" {
					g = Grant{Prefixed: true}
				}
				g.Topic = begin + g.Topic
			}
			target(g)
		}
		if l.Naming.Kind == partitioner.Prefix {
			add(l.From, Grant{Topic: "kferry-state.", Prefixed: true}, "Read") // copies that came by way of other clusters
		}
		for _, to := range l.Naming.Rename {
			target(Grant{Topic: to})
		}
		add(l.To, Grant{Topic: state.TopicName(l.From)}, "Read", "Write", "Create", "DescribeConfigs")
		add(l.To, Grant{}, "DescribeConfigs")
	}
	slices.SortStableFunc(all, func(a, b Grant) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Topic, b.Topic)) })
	return all
}

func principal(c cluster.Config) string {
	switch {
	case c.SASL != nil && c.SASL.OAuth != nil:
		return "User:SUBJECT_OF_THE_TOKEN"
	case c.SASL != nil:
		return "User:" + c.SASL.Username
	case c.TLS != nil && c.TLS.Cert != "":
		return "User:CN=SUBJECT_OF_THE_CERTIFICATE"
	}
	return "User:ANONYMOUS"
}

// named gives the name, or the longest prefix, that all topics have which a pattern (Java's) takes.
func named(pattern string) Grant {
	if strings.Contains(pattern, "|") { // either side counts
		return Grant{Topic: "*"}
	}
	var fixed []byte
	rest := pattern
	for rest != "" {
		char, n := rest[0], 1
		switch {
		case strings.HasPrefix(rest, "[.]"):
			char, n = '.', 3
		case strings.HasPrefix(rest, `\.`):
			char, n = '.', 2
		case char == '_' || char == '-' || '0' <= char && char <= '9' || 'a' <= char && char <= 'z' || 'A' <= char && char <= 'Z':
		default:
			n = 0
		}
		if n == 0 {
			break
		}
		if rest = rest[n:]; rest != "" && strings.ContainsRune("*?{", rune(rest[0])) { // it may not be there at all
			break
		}
		fixed = append(fixed, char)
	}
	switch {
	case len(fixed) == 0:
		return Grant{Topic: "*"}
	case rest == "":
		return Grant{Topic: string(fixed)}
	}
	return Grant{Topic: string(fixed), Prefixed: true}
}
