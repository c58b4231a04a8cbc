package config

import (
	"slices"
	"time"

	"kferry/partitioner"
	"kferry/pipeline"
	"kferry/pipeline/cluster"

	"github.com/goccy/go-yaml/ast"
)

// config reads the whole file. The functions below are its grammar: a key is known where it is listed.
func (r *reader) config(root ast.Node) pipeline.Config {
	cfg := pipeline.DefaultConfig()
	r.mapping(root, "",
		field{"clusters", func(n ast.Node, path string) {
			r.entries(n, path, func(alias string, at place, n ast.Node, path string) {
				cfg.Clusters[alias] = r.cluster(n, path, alias)
			})
		}},
		field{"links", func(n ast.Node, path string) {
			r.list(n, path, func(n ast.Node, path string) {
				cfg.Links = append(cfg.Links, r.link(n, path))
			})
		}},
		field{"memory", r.setBytes(&cfg.MemoryBytes)},
		field{"admin", func(n ast.Node, path string) {
			r.mapping(n, path, field{"listen", r.setText(&cfg.AdminListen)})
		}},
		field{"log", func(n ast.Node, path string) {
			r.mapping(n, path, field{"level", r.setText(&cfg.Log.Level)}, field{"format", r.setText(&cfg.Log.Format)})
		}},
	)
	return cfg
}

func (r *reader) cluster(n ast.Node, path, alias string) cluster.Config {
	c := cluster.Config{Alias: alias}
	r.mapping(n, path,
		field{"bootstrap", r.setTexts(&c.Bootstrap)},
		field{"tls", func(n ast.Node, path string) {
			c.TLS = &cluster.TLS{}
			r.mapping(n, path,
				field{"ca", r.setPath(&c.TLS.CA)},
				field{"cert", r.setPath(&c.TLS.Cert)},
				field{"key", r.setPath(&c.TLS.Key)},
				field{"server_name", r.setText(&c.TLS.ServerName)},
				field{"insecure_skip_verify", r.setBool(&c.TLS.InsecureSkipVerify)})
		}},
		field{"sasl", func(n ast.Node, path string) {
			c.SASL = r.sasl(n, path)
		}},
		field{"rack", r.setText(&c.Rack)},
	)
	return c
}

func (r *reader) sasl(n ast.Node, path string) *cluster.SASL {
	s, o := &cluster.SASL{}, &cluster.OAuth{}
	token := func(read func(ast.Node, string)) func(ast.Node, string) {
		return func(n ast.Node, path string) {
			s.OAuth = o
			read(n, path)
		}
	}
	r.mapping(n, path,
		field{"mechanism", r.setText(&s.Mechanism)},
		field{"username", r.setText(&s.Username)},
		field{"password", r.setSecret(&s.Password)},
		field{"token_endpoint", token(r.setText(&o.TokenEndpoint))},
		field{"client_id", token(r.setText(&o.ClientID))},
		field{"client_secret", token(r.setSecret(&o.ClientSecret))},
		field{"scope", token(r.setText(&o.Scope))},
		field{"token_file", token(r.setPath(&o.TokenFile))},
		field{"token_command", token(r.setTexts(&o.TokenCommand))},
		field{"extensions", token(func(n ast.Node, path string) {
			o.Extensions = map[string]string{}
			r.entries(n, path, func(name string, at place, n ast.Node, path string) {
				if value, ok := r.text(n, path); ok {
					o.Extensions[name] = value
				}
			})
		})},
	)
	return s
}

func (r *reader) link(n ast.Node, path string) pipeline.LinkConfig {
	l := pipeline.DefaultLink("", "")
	l.Name = ""
	r.mapping(n, path,
		field{"name", r.setText(&l.Name)},
		field{"from", r.setText(&l.From)},
		field{"to", r.setText(&l.To)},
		field{"topics", func(n ast.Node, path string) {
			r.mapping(n, path,
				field{"include", r.setTexts(&l.Topics.Include)},
				field{"exclude", r.setTexts(&l.Topics.Exclude)},
				field{"exclude_internal", r.setBool(&l.Topics.ExcludeInternal)})
		}},
		field{"naming", func(n ast.Node, path string) { l.Naming = r.naming(n, path) }},
		field{"separator", r.setText(&l.Separator)},
		field{"start", func(n ast.Node, path string) { l.Start = r.start(n, path) }},
		field{"isolation", func(n ast.Node, path string) {
			r.setText((*string)(&l.Isolation))(n, path)
		}},
		field{"refresh", r.setDuration(&l.Refresh)},
		field{"onto_existing", r.setBool(&l.OntoExisting)},
		field{"allow_same_cluster", r.setBool(&l.AllowSameCluster)},
	)
	if _, named := r.places[path+".name"]; !named {
		l.Name = pipeline.DefaultLink(l.From, l.To).Name
	}
	return l
}

// naming is prefix, identity, or { rename: { from: to } }.
func (r *reader) naming(n ast.Node, path string) partitioner.NamingConfig {
	naming := partitioner.NamingConfig{Kind: partitioner.Prefix}
	v := r.value(n, path)
	if v == nil {
		return naming
	}
	if _, ok := pairsOf(v); !ok {
		s, ok := r.text(v, path)
		kinds := []partitioner.NamingKind{partitioner.Prefix, partitioner.Identity}
		switch {
		case ok && slices.Contains(kinds, partitioner.NamingKind(s)):
			naming.Kind = partitioner.NamingKind(s)
		case ok:
			r.report(v, path, "naming %q is not known: prefix, identity, or { rename: { orders: orders-copy } }", shorten(s))
		}
		return naming
	}
	r.mapping(v, path, field{"rename", func(n ast.Node, path string) {
		naming = partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{}}
		r.entries(n, path, func(from string, at place, n ast.Node, path string) {
			if to, ok := r.text(n, path); ok {
				naming.Rename[from] = to
			}
		})
	}})
	return naming
}

// start is earliest, latest or an RFC 3339 time.
func (r *reader) start(n ast.Node, path string) pipeline.Start {
	s, ok := r.text(n, path)
	if !ok {
		return pipeline.Start{Kind: pipeline.StartEarliest}
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return pipeline.Start{Kind: pipeline.StartTime, Time: t}
	}
	return pipeline.Start{Kind: pipeline.StartKind(s)} // Validate says what is wrong with it
}
