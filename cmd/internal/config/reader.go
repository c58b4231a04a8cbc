package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// place is where a value stands in the file, from 1.
type place struct{ line, column int }

func placeOf(n ast.Node) place {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		n = m.Values[0].Key // its own token is the first colon
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		n = m.Key
	}
	t := n.GetToken()
	if t == nil || t.Position == nil {
		return place{1, 1}
	}
	return place{t.Position.Line, t.Position.Column}
}

// reader walks one file's syntax tree. It collects problems and goes on.
type reader struct {
	file     string
	env      Env
	problems Problems
	places   map[string]place    // of every value read, by its path (links[0].topics)
	anchors  map[string]ast.Node // &name → value
	given    map[string]string   // what came through ${...} → the text in the file, so that messages show the latter
	unread   []string            // paths of values that could not be read
	nodes    int
}

// report adds a problem of the value at path, which is not read then.
func (r *reader) report(n ast.Node, path, format string, args ...any) {
	r.reportAt(placeOf(n), path, format, args...)
	r.unread = append(r.unread, path)
}

func (r *reader) reportAt(at place, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	r.problems = append(r.problems, Problem{r.file, at.line, at.column, text})
}

// collectAnchors finds the anchors of a tree.
func collectAnchors(n ast.Node, anchors map[string]ast.Node) {
	ast.Walk(visitor(func(n ast.Node) {
		if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
			anchors[a.Name.String()] = a.Value
		}
	}), n)
}

type visitor func(ast.Node)

func (v visitor) Visit(n ast.Node) ast.Visitor { v(n); return v }

// value takes anchors, tags and aliases off a node. It is nil, and the problem reported, where nothing is left.
func (r *reader) value(n ast.Node, path string) ast.Node {
	if r.nodes++; r.nodes > nodesMax {
		if r.nodes == nodesMax+1 {
			r.report(n, path, "there are more than %d values", nodesMax)
		}
		return nil
	}
	at := n
	for range 10 {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.TagNode:
			n = v.Value
		case *ast.AliasNode:
			name := v.Value.String()
			target, ok := r.anchors[name]
			if !ok {
				r.report(at, path, "there is no anchor &%s", name)
				return nil
			}
			n = target
		case nil, *ast.NullNode:
			r.report(at, path, "the value is missing: give one, or take the key out")
			return nil
		default:
			return n
		}
	}
	r.report(at, path, "the alias leads to itself")
	return nil
}

// field is one key that a mapping may have.
type field struct {
	key  string
	read func(n ast.Node, path string)
}

// mapping reads a mapping with a fixed set of keys.
func (r *reader) mapping(n ast.Node, path string, fields ...field) {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.key
	}
	r.entries(n, path, func(key string, at place, value ast.Node, below string) {
		i := slices.Index(known, key)
		if i < 0 {
			r.reportAt(at, path, "unknown key %q: the nearest known key is %q", shorten(key), nearest(shorten(key), known))
			return
		}
		fields[i].read(value, below)
	})
}

// entries reads a mapping with any keys, once each. A merge (<<) brings what is not there already.
func (r *reader) entries(n ast.Node, path string, read func(key string, at place, value ast.Node, path string)) {
	if n = r.value(n, path); n == nil {
		return
	}
	type entry struct {
		at    place
		value ast.Node
	}
	var order []string
	found := map[string]entry{}
	var collect func(n ast.Node, depth int)
	collect = func(n ast.Node, depth int) {
		pairs, ok := pairsOf(n)
		if !ok {
			r.report(n, path, "keys and values are needed here, not %s", kind(n))
			return
		}
		own := map[string]place{}
		var merged []ast.Node
		for _, pair := range pairs {
			if pair.Key.IsMergeKey() {
				merged = append(merged, pair.Value)
				continue
			}
			key, at := keyText(pair.Key), placeOf(pair.Key)
			if first, twice := own[key]; twice {
				r.reportAt(at, path, "key %q is there twice, first in line %d", shorten(key), first.line)
				continue
			}
			own[key] = at
			if _, ok := found[key]; !ok {
				found[key] = entry{at, pair.Value}
				order = append(order, key)
			}
		}
		for _, m := range merged {
			if depth == 10 {
				r.report(m, path, "merges are nested deeper than 10")
				continue
			}
			if m = r.value(m, path); m != nil {
				collect(m, depth+1)
			}
		}
	}
	collect(n, 0)
	for _, key := range order {
		e := found[key]
		at := join(path, key)
		if r.places[at] = e.at; isScalar(e.value) {
			r.places[at] = placeOf(e.value)
		}
		read(key, e.at, e.value, at)
	}
}

// list reads a sequence.
func (r *reader) list(n ast.Node, path string, read func(n ast.Node, path string)) {
	if n = r.value(n, path); n == nil {
		return
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.report(n, path, "a list is needed here, not %s", kind(n))
		return
	}
	for i, v := range seq.Values {
		at := path + "[" + strconv.Itoa(i) + "]"
		r.places[at] = placeOf(v)
		read(v, at)
	}
}

func pairsOf(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.GetToken().Value
}

func isScalar(n ast.Node) bool {
	_, ok := n.(ast.ScalarNode)
	return ok
}

// kind says what a value is, never what it holds.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys and values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return "something else"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func shorten(key string) string {
	if len(key) > nameDistance {
		return strings.ToValidUTF8(key[:nameDistance], "") + "..."
	}
	return key
}
