package partitioner

import (
	"cmp"
	"fmt"
	"slices"
)

// Hop is one link, as a ring sees it.
type Hop struct {
	From, To  string // aliases
	Filter    *Filter
	Naming    NamingConfig
	Separator string
}

// ringSteps bounds the search for rings: a full mesh of ten clusters has millions.
const ringSteps = 5_000

// Rings lists the closed ways through the links that contain a link which matters, as indices into hops, the shortest first and
// each once per link it can begin with. A way visits a cluster at most once. node gives the cluster behind an alias, so that
// two aliases of one cluster close a ring. It is false where there are more than can be listed.
func Rings(hops []Hop, node func(alias string) string, matters func(Hop) bool) (rings [][]int, ok bool) {
	steps := 0
	known := map[string]bool{}
	var walk func(way []int, seen map[string]bool) bool
	walk = func(way []int, seen map[string]bool) bool {
		if steps++; steps > ringSteps {
			return false
		}
		at := node(hops[way[len(way)-1]].To)
		if at == node(hops[way[0]].From) {
			for i := range way {
				if ring := slices.Concat(way[i:], way[:i]); !known[fmt.Sprint(ring)] {
					known[fmt.Sprint(ring)] = true
					rings = append(rings, ring)
				}
			}
			return true
		}
		if seen[at] {
			return true
		}
		seen[at] = true
		defer delete(seen, at)
		for next := range hops {
			if node(hops[next].From) == at && !walk(append(way, next), seen) {
				return false
			}
		}
		return true
	}
	for first, h := range hops {
		if matters(h) && !walk([]int{first}, map[string]bool{}) {
			return nil, false
		}
	}
	slices.SortStableFunc(rings, func(a, b []int) int { return cmp.Or(cmp.Compare(len(a), len(b)), slices.Compare(a, b)) })
	return rings, true
}

// Overlap reports whether a topic can travel all hops in a row: each writes a name that the next one takes. Around a ring
// that brings a cluster's own records back to it. The example is such a topic on the first hop's source, and empty
// where the patterns are beyond exact reasoning; then the answer is true to be safe.
//
// A ring of prefix hops with one separator never overlaps: the name says where the topic has been, and Namer stops it.
func Overlap(hops []Hop, aliases []string) (example string, overlap bool) {
	namers := make([]*Namer, len(hops))
	for i, h := range hops {
		namers[i] = NewNamer(h.Naming, h.From, h.To, h.Separator, aliases)
	}
	travels := func(topic string) bool {
		for i, h := range hops {
			taken, err := h.Filter.Accepts(topic)
			name, ok := namers[i].Target(topic)
			if err != nil || !taken || !ok {
				return false
			}
			topic = name
		}
		return true
	}

	// What is not renamed is called prefix+topic before each hop, so one walk over all filters at once decides. What is renamed
	// is a finite list, tried name by name.
	prefix, unrenamed := "", true
	var parts []automaton
	for _, h := range hops {
		var apart []string
		if h.Naming.Kind == Rename {
			for from, to := range h.Naming.Rename {
				apart = append(apart, from, to)
				if len(from) > len(prefix) && from[:len(prefix)] == prefix && travels(from[len(prefix):]) {
					return from[len(prefix):], true
				}
			}
		}
		parts = append(parts, h.Filter.automata(prefix, apart)...)
		if h.Naming.Kind == Prefix {
			for _, alias := range UpstreamChain(prefix+"x", h.Separator, aliases) {
				unrenamed = unrenamed && alias != h.To
			}
			prefix = h.From + h.Separator + prefix
		}
	}
	if !unrenamed {
		return "", false
	}
	example, overlap = witness(parts)
	if !travels(example) {
		example = ""
	}
	return example, overlap
}
