package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"kferry/pipeline/cluster"

	"github.com/goccy/go-yaml/ast"
)

// text reads a text and puts in what its ${...} name. It is false, and the problem reported, where that cannot be done.
func (r *reader) text(n ast.Node, path string) (string, bool) {
	raw, ok := r.raw(n, path)
	if !ok {
		return "", false
	}
	return r.fill(n, path, raw)
}

// raw reads a text as it stands in the file.
func (r *reader) raw(n ast.Node, path string) (string, bool) {
	if n = r.value(n, path); n == nil {
		return "", false
	}
	switch v := n.(type) {
	case *ast.StringNode:
		return v.Value, true
	case *ast.LiteralNode:
		return v.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		r.report(n, path, "a text is needed here, not %s: put it in quotes", kind(n))
	default:
		r.report(n, path, "a text is needed here, not %s", kind(n))
	}
	return "", false
}

// reference is ${env:NAME} or ${file:PATH}; $${ stands for a plain ${.
var reference = regexp.MustCompile(`\$?\$\{[^}]*\}?`)

func (r *reader) fill(n ast.Node, path, text string) (string, bool) {
	whole, err := r.expand(text, func(value, ref string) { r.given[value] = ref })
	if err != nil {
		r.report(n, path, "%v", err)
		return "", false
	}
	return whole, true
}

// expand puts in what the ${...} of a text name, and tells given of each. The error is that of the first that cannot be had.
func (r *reader) expand(text string, given func(value, ref string)) (whole string, err error) {
	whole = reference.ReplaceAllStringFunc(text, func(ref string) string {
		if plain, escaped := strings.CutPrefix(ref, "$$"); escaped {
			return "$" + plain
		}
		value, e := r.look(ref)
		if e != nil {
			if err == nil {
				err = e
			}
			return ""
		}
		given(value, ref)
		return value
	})
	return whole, err
}

func (r *reader) look(ref string) (string, error) {
	body, closed := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
	if !closed {
		return "", fmt.Errorf("a ${ is not closed: write ${env:NAME}, ${file:PATH}, or $${ for a plain ${")
	}
	source, name, _ := strings.Cut(body, ":")
	switch {
	case source == "env" && name != "":
		value, ok := r.env(name)
		if !ok {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		return value, nil
	case source == "file" && name != "":
		path := r.beside(name)
		data, err := readBounded(path, includeBytes)
		if err != nil {
			return "", fmt.Errorf("read %s: %s", path, reason(err))
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
	}
	return "", fmt.Errorf("%s is not known: write ${env:NAME}, ${file:PATH}, or $${ for a plain ${", ref)
}

// scrub puts references back in place of what they stood for, so that no message shows what an environment
// variable or a file holds: any of them may be a secret in the wrong place.
func (r *reader) scrub(text string) string {
	for value, ref := range r.given {
		escaped := strconv.Quote(value)
		for _, shown := range []string{value, escaped[1 : len(escaped)-1]} {
			if len(shown) >= 3 { // less would tear words apart, and is no secret
				text = strings.ReplaceAll(text, shown, ref)
			}
		}
	}
	return text
}

func (r *reader) setText(into *string) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		if s, ok := r.text(n, path); ok {
			*into = s
		}
	}
}

// setSecret reads a secret. One with a ${file:...} in it is read again whenever it is used, so that it can change under a running
// process. The later readers share nothing with the first one but what does not change.
func (r *reader) setSecret(into *cluster.Secret) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		raw, ok := r.raw(n, path)
		if !ok {
			return
		}
		text, ok := r.fill(n, path, raw)
		switch {
		case !ok:
		case fromFile(raw):
			again := &reader{file: r.file, env: r.env}
			*into = cluster.NewSecretFrom(func() (string, error) { return again.expand(raw, func(string, string) {}) })
		default:
			*into = cluster.NewSecret(text)
		}
	}
}

// fromFile reports whether a text has a reference to a file in it.
func fromFile(text string) bool {
	return slices.ContainsFunc(reference.FindAllString(text, -1), func(ref string) bool { return strings.HasPrefix(ref, "${file:") })
}

func (r *reader) setPath(into *string) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		if s, ok := r.text(n, path); ok {
			*into = r.beside(s)
		}
	}
}

func (r *reader) setTexts(into *[]string) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		*into = nil
		r.list(n, path, func(n ast.Node, path string) {
			if s, ok := r.text(n, path); ok {
				*into = append(*into, s)
			}
		})
	}
}

func (r *reader) setBool(into *bool) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		v := r.value(n, path)
		switch b := v.(type) {
		case nil:
			return
		case *ast.BoolNode:
			*into = b.Value
			return
		case *ast.StringNode: // "${env:X}" can give one
			if s, ok := r.text(v, path); !ok {
				return
			} else if s == "true" || s == "false" {
				*into = s == "true"
				return
			}
		}
		r.report(v, path, "true or false is needed here")
	}
}

var units = map[string]float64{"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

var size = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)$`)

// setBytes reads a size: a number of bytes, or with a unit as in 1GiB, 256MiB, 50MB.
func (r *reader) setBytes(into *int64) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		v := r.value(n, path)
		if v == nil {
			return
		}
		s := v.GetToken().Value
		if !isNumber(v) {
			var ok bool
			if s, ok = r.text(v, path); !ok {
				return
			}
		}
		m := size.FindStringSubmatch(s)
		if m != nil {
			unit, known := units[m[2]]
			number, err := strconv.ParseFloat(m[1], 64)
			if bytes := number * unit; known && err == nil && bytes < math.MaxInt64 {
				*into = int64(bytes)
				return
			}
		}
		r.report(v, path, "%q is not a size such as 256MiB, 1GiB or 50MB", shorten(s))
	}
}

func isNumber(n ast.Node) bool {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

// setDuration reads a duration with its unit, as in 10s, 500ms, 1m30s.
func (r *reader) setDuration(into *time.Duration) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		v := r.value(n, path)
		if v == nil {
			return
		}
		if isNumber(v) {
			r.report(v, path, "the unit is missing: write 10s, 500ms or 1m30s")
			return
		}
		s, ok := r.text(v, path)
		if !ok {
			return
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			r.report(v, path, "%q is not a duration such as 10s, 500ms or 1m30s", shorten(s))
			return
		}
		*into = d
	}
}
