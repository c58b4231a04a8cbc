package partitioner

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const groupDepth = 100 // deepest nesting of groups and classes

// translated is a Java pattern in the syntax that Go's regexp and regexp2 share.
type translated struct {
	text       string
	backtracks bool // needs regexp2: look-around, back-reference, possessive or atomic part
}

// translate rewrites what Java has and regexp2 (.NET's syntax) has not: possessive quantifiers, \Q..\E, character
// class union and intersection, POSIX classes, Java's escapes, the numbers of named groups. What Java refuses is refused
// (java.util.regex.Pattern); so is what makes no sense for topic names ((?x), \R, \X, \G).
func translate(pattern string) (translated, error) {
	t := &translator{in: []rune(pattern), names: map[string]int{}}
	if err := t.alternatives(0); err != nil {
		return translated{}, err
	}
	if t.pos < len(t.in) {
		return translated{}, t.errorf(t.pos, "')' closes nothing")
	}
	return translated{text: t.out.String(), backtracks: t.backtracks}, nil
}

type translator struct {
	in         []rune
	pos        int
	out        strings.Builder
	backtracks bool
	fold       bool           // (?i) is on here
	groups     int            // capturing groups opened so far
	names      map[string]int // named group → number
}

func (t *translator) errorf(pos int, format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", pos+1, fmt.Sprintf(format, args...))
}

func (t *translator) has(s string) bool {
	for i, r := range []rune(s) {
		if t.pos+i >= len(t.in) || t.in[t.pos+i] != r {
			return false
		}
	}
	return true
}

func (t *translator) take(s string) bool {
	if !t.has(s) {
		return false
	}
	t.pos += len([]rune(s))
	return true
}

// alternatives reads up to a ')' or the end.
func (t *translator) alternatives(depth int) error {
	if depth > groupDepth {
		return t.errorf(t.pos, "groups are nested deeper than %d", groupDepth)
	}
	for t.pos < len(t.in) && t.in[t.pos] != ')' {
		if t.take("|") {
			t.out.WriteByte('|')
			continue
		}
		if err := t.term(depth); err != nil {
			return err
		}
	}
	return nil
}

// term reads one atom and its quantifier.
func (t *translator) term(depth int) error {
	if t.take(`\Q`) {
		return t.quoted()
	}
	start := t.out.Len()
	if err := t.atom(depth); err != nil {
		return err
	}
	return t.repeat(start)
}

// quoted reads the literal text of \Q...\E; a quantifier after it binds to its last character, as in Java.
func (t *translator) quoted() error {
	text, _, _ := strings.Cut(string(t.in[t.pos:]), `\E`)
	runes := []rune(text)
	t.pos = min(t.pos+len(runes)+2, len(t.in))
	if len(runes) == 0 {
		return nil
	}
	last := len(runes) - 1
	t.out.WriteString(regexp.QuoteMeta(string(runes[:last])))
	start := t.out.Len()
	t.out.WriteString(regexp.QuoteMeta(string(runes[last:])))
	return t.repeat(start)
}

// repeat reads the quantifier of the atom that was written at start. A possessive one, X*+, becomes the atomic group (?>X*).
func (t *translator) repeat(start int) error {
	q, err := t.quantifier()
	if err != nil || q == "" {
		return err
	}
	t.out.WriteString(q)
	switch {
	case t.take("?"):
		t.out.WriteByte('?')
	case t.take("+"):
		t.backtracks = true
		s := t.out.String()
		t.out.Reset()
		t.out.WriteString(s[:start] + "(?>" + s[start:] + ")")
	}
	return nil
}

func (t *translator) quantifier() (string, error) {
	for _, q := range []string{"*", "+", "?"} {
		if t.take(q) {
			return q, nil
		}
	}
	at := t.pos
	if !t.take("{") {
		return "", nil
	}
	end := t.pos
	for end < len(t.in) && t.in[end] != '}' {
		end++
	}
	if end == len(t.in) {
		return "", t.errorf(at, "'{' is not closed")
	}
	body := string(t.in[t.pos:end])
	t.pos = end + 1
	low, high, ranged := strings.Cut(body, ",")
	n, err := strconv.ParseUint(low, 10, 31)
	if err != nil {
		return "", t.errorf(at, "{%s} is not a repeat count", body)
	}
	if ranged && high != "" {
		m, err := strconv.ParseUint(high, 10, 31)
		if err != nil || m < n {
			return "", t.errorf(at, "{%s} is not a range of repeat counts", body)
		}
	}
	return "{" + body + "}", nil
}

func (t *translator) atom(depth int) error {
	at := t.pos
	r := t.in[t.pos]
	switch r {
	case '*', '+', '?':
		return t.errorf(at, "'%c' has nothing to repeat (write .%c for any text)", r, r)
	case '{':
		return t.errorf(at, "'{' has nothing to repeat")
	case '(':
		return t.group(depth)
	case '[':
		t.pos++
		set, negated, err := t.class(0)
		if err != nil {
			return err
		}
		t.out.WriteString(set.render(negated))
		return nil
	case '\\':
		return t.escape()
	}
	t.pos++
	if r == '^' || r == '$' || r == '.' {
		t.out.WriteRune(r)
	} else {
		t.out.WriteString(regexp.QuoteMeta(string(r)))
	}
	return nil
}

func (t *translator) group(depth int) error {
	at := t.pos
	t.pos++
	open := "("
	switch {
	case t.take("?:"):
		open = "(?:"
	case t.take("?="), t.take("?!"), t.take("?>"), t.take("?<="), t.take("?<!"):
		open = string(t.in[at:t.pos])
		t.backtracks = true
	case t.take("?<"):
		end := t.pos
		for end < len(t.in) && t.in[end] != '>' {
			end++
		}
		name := string(t.in[t.pos:end])
		if end == len(t.in) || !groupName.MatchString(name) {
			return t.errorf(at, "the group's name is not letters and digits in <>")
		}
		if _, twice := t.names[name]; twice {
			return t.errorf(at, "a group %q exists already", name)
		}
		// Java numbers named groups with the others, .NET after them: so it goes by number only.
		t.groups++
		t.names[name] = t.groups
		t.pos = end + 1
	case t.take("?"):
		return t.flags(at, depth)
	default:
		t.groups++
	}
	return t.inside(at, open, depth)
}

var groupName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)

func (t *translator) inside(at int, open string, depth int) error {
	t.out.WriteString(open)
	outer := t.fold
	if strings.HasPrefix(open, "(?") && strings.HasSuffix(open, ":") {
		t.setFold(open)
	}
	err := t.alternatives(depth + 1)
	if t.fold = outer; err != nil {
		return err
	}
	if !t.take(")") {
		return t.errorf(at, "'(' is not closed")
	}
	t.out.WriteByte(')')
	return nil
}

// flags reads (?i) and (?i:...). d, u and U make no difference in the ASCII of topic names.
func (t *translator) flags(at, depth int) error {
	var keep strings.Builder
	for ; t.pos < len(t.in); t.pos++ {
		switch r := t.in[t.pos]; r {
		case 'i', 'm', 's', '-':
			keep.WriteRune(r)
		case 'd', 'u', 'U':
		case ')', ':':
			flags := strings.TrimSuffix(keep.String(), "-")
			t.pos++
			if r == ':' {
				return t.inside(at, "(?"+flags+":", depth)
			}
			if t.pos < len(t.in) && strings.ContainsRune("*+?{", t.in[t.pos]) {
				return t.errorf(t.pos, "'%c' has nothing to repeat", t.in[t.pos])
			}
			if flags != "" {
				t.out.WriteString("(?" + flags + ")")
				t.setFold(flags)
			}
			return nil
		default:
			return t.errorf(at, "the group's kind or flag '%c' is not known", r)
		}
	}
	return t.errorf(at, "'(' is not closed")
}

// setFold follows whether flags such as i or s-i turn (?i) on or off.
func (t *translator) setFold(flags string) {
	on, off, _ := strings.Cut(flags, "-")
	if strings.Contains(on, "i") {
		t.fold = true
	}
	if strings.Contains(off, "i") {
		t.fold = false
	}
}

// escape reads a backslash and what belongs to it, outside a class.
func (t *translator) escape() error {
	at := t.pos
	if at+1 >= len(t.in) {
		return t.errorf(at, `a '\' ends the pattern`)
	}
	switch r := t.in[at+1]; {
	case r >= '1' && r <= '9':
		return t.backReference(at)
	case r == 'k':
		t.pos += 2
		end := t.pos
		for end < len(t.in) && t.in[end] != '>' {
			end++
		}
		if !t.take("<") || end == len(t.in) {
			return t.errorf(at, `\k needs a <name>`)
		}
		name := string(t.in[t.pos:end])
		n, ok := t.names[name]
		if !ok {
			return t.errorf(at, `\k names the group %q, which does not exist yet`, name)
		}
		t.pos = end + 1
		t.reference(n)
		return nil
	case r == 'b' || r == 'B' || r == 'A' || r == 'z':
		t.pos += 2
		t.out.WriteString(`\` + string(r))
		return nil
	case r == 'Z': // a topic name has no line terminator that could follow
		t.pos += 2
		t.out.WriteString(`\z`)
		return nil
	}
	set, negated, err := t.classEscape()
	if err != nil {
		return err
	}
	t.out.WriteString(set.render(negated))
	return nil
}

// backReference reads \n; more digits belong to it while such a group exists, as in Java.
func (t *translator) backReference(at int) error {
	t.pos++
	n := int(t.in[t.pos] - '0')
	for t.pos++; t.pos < len(t.in) && t.in[t.pos] >= '0' && t.in[t.pos] <= '9'; t.pos++ {
		longer := n*10 + int(t.in[t.pos]-'0')
		if longer > t.groups {
			break
		}
		n = longer
	}
	if n > t.groups {
		return t.errorf(at, `\%d names a group that does not exist yet`, n)
	}
	t.reference(n)
	return nil
}

func (t *translator) reference(n int) {
	t.backtracks = true
	fmt.Fprintf(&t.out, `(?:\%d)`, n) // the brackets keep a digit that follows apart
}
