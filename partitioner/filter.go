package partitioner

import (
	"errors"
	"fmt"
)

// Internal are the topics that a link leaves out unless it is told otherwise: the brokers' own, kferry's state, and
// MirrorMaker 2's. Whole-name Java patterns.
func Internal() []string {
	return []string{`__.*`, `kferry-.*[.]internal`, `mm2.*[.]internal`}
}

// Filter says which topics of a source a link takes. It is immutable and safe for concurrent use.
type Filter struct {
	include, exclude, internal []Pattern
}

// NewFilter compiles the patterns. No include takes no topic. The error joins one line per wrong pattern.
func NewFilter(include, exclude []string, excludeInternal bool) (*Filter, error) {
	f := &Filter{}
	var errs []error
	compile := func(kind string, patterns []string) (compiled []Pattern) {
		for _, text := range patterns {
			p, err := CompilePattern(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", kind, err))
				continue
			}
			compiled = append(compiled, p)
		}
		return compiled
	}
	f.include = compile("include", include)
	f.exclude = compile("exclude", exclude)
	if excludeInternal {
		f.internal = compile("internal", Internal())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return f, nil
}

// Accepts reports whether the link takes the topic: an include matches it, and no exclude does. The error joins the patterns
// that did not come to an end; the answer is false then, so that an exclude that hangs never lets a topic through.
func (f *Filter) Accepts(topic string) (bool, error) {
	_, ok, err := f.Explain(topic)
	return ok, err
}

// Explain is Accepts with the rule that decided, for plans and status: "include orders.*", "exclude tmp.*",
// "internal __.*", or "no include matches".
func (f *Filter) Explain(topic string) (rule string, ok bool, err error) {
	for _, step := range []struct {
		kind     string
		patterns []Pattern
		ok       bool
	}{{"internal", f.internal, false}, {"exclude", f.exclude, false}, {"include", f.include, true}} {
		for _, p := range step.patterns {
			hit, err := p.Match(topic)
			if err != nil {
				return step.kind + " " + p.String(), false, err
			}
			if hit {
				return step.kind + " " + p.String(), step.ok, nil
			}
		}
	}
	return "no include matches", false, nil
}
