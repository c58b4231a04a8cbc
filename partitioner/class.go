package partitioner

import (
	"fmt"
	"strconv"
	"strings"
)

// charset is a set of ASCII characters, which is all that a topic name can hold; other is a literal beyond ASCII.
type charset struct {
	has   [128]bool
	other string
}

func (c *charset) add(low, high rune) {
	for r := low; r <= high && r < 128; r++ {
		c.has[r] = true
	}
	if high >= 128 && low == high && !strings.ContainsRune(c.other, low) {
		c.other += string(low)
	}
}

func (c *charset) union(d charset) {
	for i, in := range d.has {
		c.has[i] = c.has[i] || in
	}
	for _, r := range d.other {
		c.add(r, r)
	}
}

func (c *charset) intersect(d charset) {
	for i, in := range d.has {
		c.has[i] = c.has[i] && in
	}
	c.other = ""
}

func (c *charset) foldCase() {
	for low, up := 'a', 'A'; low <= 'z'; low, up = low+1, up+1 {
		both := c.has[low] || c.has[up]
		c.has[low], c.has[up] = both, both
	}
}

func (c charset) complement() charset {
	for i := range c.has {
		c.has[i] = !c.has[i]
	}
	c.other = ""
	return c
}

// render writes the set as a class that both engines read alike.
func (c charset) render(negated bool) string {
	var b strings.Builder
	for low := 0; low < 128; low++ {
		if !c.has[low] {
			continue
		}
		high := low
		for high+1 < 128 && c.has[high+1] {
			high++
		}
		fmt.Fprintf(&b, `\x%02x`, low)
		if high > low {
			fmt.Fprintf(&b, `-\x%02x`, high)
		}
		low = high
	}
	b.WriteString(c.other)
	switch {
	case b.Len() == 0 && negated:
		return `[\x00-\x7f]`
	case b.Len() == 0:
		return `[^\s\S]`
	case negated:
		return "[^" + b.String() + "]"
	}
	return "[" + b.String() + "]"
}

func setOf(ranges string) charset {
	var c charset
	r := []rune(ranges)
	for i := 0; i < len(r); i += 2 {
		c.add(r[i], r[i+1])
	}
	return c
}

// named are Java's \p{...} classes that can hold a character of a topic name, by name; all over ASCII.
var named = map[string]string{
	"Lower": "az", "Ll": "az", "IsLowercase": "az", "javaLowerCase": "az",
	"Upper": "AZ", "Lu": "AZ", "IsUppercase": "AZ", "javaUpperCase": "AZ",
	"Alpha": "azAZ", "L": "azAZ", "IsL": "azAZ", "IsAlphabetic": "azAZ", "IsLatin": "azAZ",
	"Digit": "09", "Nd": "09", "N": "09", "IsDigit": "09",
	"Alnum": "azAZ09", "XDigit": "09afAF", "ASCII": "\x00\x7f",
	"Punct": "!/:@[`{~", "IsPunctuation": "!#%*,/:;?@[]__{{}}", "P": "!#%*,/:;?@[]__{{}}",
	"Graph": "!~", "Print": " ~", "Blank": "  \t\t", "Cntrl": "\x00\x1f\x7f\x7f", "Space": "  \t\r",
}

// class reads a character class after its '[': unions, ranges, nested classes, && intersections.
func (t *translator) class(depth int) (set charset, negated bool, err error) {
	at := t.pos - 1
	if depth > groupDepth {
		return set, false, t.errorf(at, "classes are nested deeper than %d", groupDepth)
	}
	negated = t.take("^")
	var operands []charset // closed by && so far
	first := true
	for {
		if t.pos >= len(t.in) {
			return set, false, t.errorf(at, "'[' is not closed")
		}
		switch {
		case t.in[t.pos] == ']' && !first:
			t.pos++
			for _, o := range operands {
				set.intersect(o)
			}
			return set, negated, nil
		case t.has("&&"):
			if t.has("&&]") || t.has("&&&") {
				return set, false, t.errorf(t.pos, "&& has nothing on its right")
			}
			t.pos += 2
			if !first {
				operands = append(operands, set)
				set = charset{}
			}
		case t.take("["):
			inner, inverse, err := t.class(depth + 1)
			if err != nil {
				return set, false, err
			}
			if inverse {
				inner = inner.complement()
			}
			set.union(inner)
		default:
			var item charset
			if err := t.item(&item); err != nil {
				return set, false, err
			}
			if t.fold { // here, because the engines fold only the class that comes out in the end
				item.foldCase()
			}
			set.union(item)
		}
		first = false
	}
}

// item reads one character, range or escape of a class.
func (t *translator) item(set *charset) error {
	at := t.pos
	low, one, c, err := t.classAtom()
	if err != nil {
		return err
	}
	if !one {
		set.union(c)
		return nil
	}
	if !t.has("-") || t.has("-]") || t.has("-[") || t.has("-&&") || t.pos+1 >= len(t.in) {
		set.add(low, low)
		return nil
	}
	t.pos++
	high, one, _, err := t.classAtom()
	if err != nil {
		return err
	}
	if !one || high < low {
		return t.errorf(at, "the range is not from a lower to a higher character")
	}
	set.add(low, high)
	return nil
}

// classAtom reads one character, or an escape that stands for a set.
func (t *translator) classAtom() (r rune, one bool, set charset, err error) {
	if t.in[t.pos] != '\\' {
		t.pos++
		return t.in[t.pos-1], true, set, nil
	}
	at := t.pos
	if at+1 < len(t.in) && t.in[at+1] == 'Q' {
		return 0, false, set, t.errorf(at, `\Q inside a class is not supported`)
	}
	set, negated, err := t.classEscape()
	if err != nil {
		return 0, false, set, err
	}
	if negated {
		return 0, false, set.complement(), nil
	}
	if r, ok := set.single(); ok {
		return r, true, set, nil
	}
	return 0, false, set, nil
}

func (c charset) single() (rune, bool) {
	found, n := rune(0), 0
	for i, in := range c.has {
		if in {
			found, n = rune(i), n+1
		}
	}
	for _, r := range c.other {
		found, n = r, n+1
	}
	return found, n == 1
}

// classEscape reads an escape that stands for a character or a set of characters.
func (t *translator) classEscape() (set charset, negated bool, err error) {
	at := t.pos
	t.pos++
	if t.pos >= len(t.in) {
		return set, false, t.errorf(at, `a '\' ends the pattern`)
	}
	r := t.in[t.pos]
	t.pos++
	literal := func(r rune) (charset, bool, error) { set.add(r, r); return set, false, nil }
	switch r {
	case 'd', 'D':
		return setOf("09"), r == 'D', nil
	case 'w', 'W':
		return setOf("azAZ09__"), r == 'W', nil
	case 's', 'S':
		return setOf("  \t\r"), r == 'S', nil
	case 't':
		return literal('\t')
	case 'n':
		return literal('\n')
	case 'r':
		return literal('\r')
	case 'f':
		return literal('\f')
	case 'a':
		return literal('\a')
	case 'e':
		return literal(0x1b)
	case 'p', 'P':
		name := ""
		if t.take("{") {
			end := t.pos
			for end < len(t.in) && t.in[end] != '}' {
				end++
			}
			name = string(t.in[t.pos:end])
			t.pos = min(end+1, len(t.in))
		} else if t.pos < len(t.in) {
			name = string(t.in[t.pos])
			t.pos++
		}
		ranges, ok := named[name]
		if !ok {
			return set, false, t.errorf(at, `the class \%c{%s} is not known`, r, name)
		}
		return setOf(ranges), r == 'P', nil
	case 'x', 'u':
		width := 2
		if r == 'u' {
			width = 4
		}
		digits := ""
		if r == 'x' && t.take("{") {
			for t.pos < len(t.in) && t.in[t.pos] != '}' {
				digits += string(t.in[t.pos])
				t.pos++
			}
			t.pos = min(t.pos+1, len(t.in))
		} else {
			end := min(t.pos+width, len(t.in))
			digits = string(t.in[t.pos:end])
			t.pos = end
			if len(digits) != width {
				digits = "" // refused below
			}
		}
		n, err := strconv.ParseUint(digits, 16, 21)
		if err != nil || n > 0x10ffff || n >= 0xd800 && n <= 0xdfff {
			return set, false, t.errorf(at, `\%c needs the hexadecimal number of a character`, r)
		}
		return literal(rune(n))
	}
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return set, false, t.errorf(at, `the escape \%c is not known`, r)
	}
	return literal(r)
}
