package partitioner

import (
	"encoding/binary"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// walkStates bounds a walk over several filters at once.
const walkStates = 5_000

// topicAlphabet is every character of a topic name, the plainest first, so that examples read well.
const topicAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

// automaton follows one regular expression, character by character, as a set of positions in Go's compiled program.
type automaton struct {
	prog   *syntax.Prog
	wanted bool // the name has to match; else it must not
	pcs    []uint32
	prev   rune // the character before, -1 at the beginning: what ^ and \b look at
}

// automata gives the filter's patterns as automata that have read prefix already. A pattern that is not regular is left out: an
// include then stands for any name, an exclude for none, so that a walk finds too much rather than too little.
// apart are names to be left out too.
func (f *Filter) automata(prefix string, apart []string) []automaton {
	var all []automaton
	join := func(patterns []Pattern, wanted bool, more []string) {
		var texts []string
		for _, p := range patterns {
			if p.linear == nil {
				if wanted {
					return
				}
				continue
			}
			texts = append(texts, p.linear.String())
		}
		for _, name := range more {
			texts = append(texts, `\A`+regexp.QuoteMeta(name)+`\z`)
		}
		text := strings.Join(texts, "|")
		if len(texts) == 0 {
			if !wanted {
				return
			}
			text = `[^\s\S]` // no include: no name
		}
		re, err := syntax.Parse(text, syntax.Perl)
		if err != nil {
			panic("BUG: a pattern that compiled does not parse: " + err.Error())
		}
		prog, err := syntax.Compile(re.Simplify())
		if err != nil {
			panic("BUG: a pattern that compiled does not compile: " + err.Error())
		}
		a := automaton{prog: prog, wanted: wanted, pcs: []uint32{uint32(prog.Start)}, prev: -1}
		for _, r := range prefix {
			a = a.step(r)
		}
		all = append(all, a)
	}
	join(f.include, true, nil)
	join(append(slices.Clone(f.exclude), f.internal...), false, apart)
	return all
}

// reach follows what needs no character, given the next one (-1 at the end).
func (a automaton) reach(next rune) (pcs []uint32) {
	flags := syntax.EmptyOpContext(a.prev, next)
	seen := make(map[uint32]bool, len(a.pcs))
	stack := slices.Clone(a.pcs)
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		switch in := &a.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				stack = append(stack, in.Out)
			}
		case syntax.InstFail:
		default:
			pcs = append(pcs, pc)
		}
	}
	return pcs
}

func (a automaton) step(r rune) automaton {
	var next []uint32
	for _, pc := range a.reach(r) {
		in := &a.prog.Inst[pc]
		if in.Op != syntax.InstMatch && in.MatchRune(r) {
			next = append(next, in.Out)
		}
	}
	slices.Sort(next)
	a.pcs, a.prev = slices.Compact(next), r
	return a
}

// accepts reports whether the name may end here.
func (a automaton) accepts() bool {
	matched := slices.ContainsFunc(a.reach(-1), func(pc uint32) bool { return a.prog.Inst[pc].Op == syntax.InstMatch })
	return matched == a.wanted
}

// witness finds the shortest name that all automata accept, breadth first over their common states. It is true without
// a name where the states are too many to visit.
func witness(parts []automaton) (name string, found bool) {
	type state struct {
		parts []automaton
		name  string
	}
	seen := map[string]bool{}
	queue := []state{{parts: parts}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, r := range topicAlphabet {
			next := state{name: at.name + string(r)}
			key := make([]byte, 0, 64)
			dead, accepted := false, true
			for _, a := range at.parts {
				b := a.step(r)
				if dead = b.wanted && len(b.pcs) == 0; dead {
					break
				}
				accepted = accepted && b.accepts()
				next.parts = append(next.parts, b)
				key = binary.AppendUvarint(key, uint64(len(b.pcs)))
				for _, pc := range b.pcs {
					key = binary.AppendUvarint(key, uint64(pc))
				}
			}
			if dead {
				continue
			}
			if accepted {
				return next.name, true
			}
			if syntax.IsWordChar(r) {
				key = append(key, 'w')
			}
			if seen[string(key)] {
				continue
			}
			if seen[string(key)] = true; len(seen) > walkStates {
				return "", true
			}
			queue = append(queue, next)
		}
	}
	return "", false
}
