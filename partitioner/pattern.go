package partitioner

import (
	"fmt"
	"regexp"
	"time"

	"github.com/dlclark/regexp2"
)

const (
	patternChars   = 10_000      // longest pattern, in characters
	patternTimeout = time.Second // longest match by the backtracking engine
)

// Pattern is one Java regular expression over whole topic names. It is immutable and safe for concurrent use.
type Pattern struct {
	text   string          // as written
	linear *regexp.Regexp  // set when the pattern is regular
	back   *regexp2.Regexp // set otherwise
}

// CompilePattern reads a Java regular expression. The error says what is wrong in the pattern and at which character.
func CompilePattern(text string) (Pattern, error) {
	if text == "" {
		return Pattern{}, fmt.Errorf("pattern is empty")
	}
	if len(text) > patternChars {
		return Pattern{}, fmt.Errorf("pattern has %d characters, the limit is %d", len(text), patternChars)
	}
	t, err := translate(text)
	if err != nil {
		return Pattern{}, fmt.Errorf("pattern %q: %w", text, err)
	}
	whole := `\A(?:` + t.text + `)\z`
	if !t.backtracks {
		// An error here is a limit of the linear engine (a repeat count above 1,000): the other one has none.
		if re, err := regexp.Compile(whole); err == nil {
			return Pattern{text: text, linear: re}, nil
		}
	}
	re, err := regexp2.Compile(whole, regexp2.None)
	if err != nil {
		return Pattern{}, fmt.Errorf("pattern %q: %w", text, err)
	}
	re.MatchTimeout = patternTimeout
	return Pattern{text: text, back: re}, nil
}

// String gives the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match reports whether the whole name matches. The error is a pattern that did not come to an end within a second;
// the name counts as not matched then.
func (p Pattern) Match(name string) (bool, error) {
	if p.linear != nil {
		return p.linear.MatchString(name), nil
	}
	ok, err := p.back.MatchString(name)
	if err != nil {
		return false, fmt.Errorf("match %q against pattern %q: gave up after %v", name, p.text, patternTimeout)
	}
	return ok, nil
}
