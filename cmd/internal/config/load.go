package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"kferry/pipeline"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	fileBytes    = 1 << 20  // largest configuration file
	includeBytes = 64 << 10 // largest file behind a ${file:...}
	nodesMax     = 100_000  // values read, aliases counted each time they are used
	nameDistance = 64       // longest key that is compared with the known ones
)

// Env gives the value of an environment variable, as os.LookupEnv.
type Env func(name string) (string, bool)

// Load reads a configuration file. Relative paths in it are relative to its folder. An error is of type Problems.
func Load(path string, env Env) (pipeline.Config, error) {
	data, err := readBounded(path, fileBytes)
	if err != nil {
		return pipeline.Config{}, Problems{{File: path, Text: reason(err)}}
	}
	return Parse(path, data, env)
}

// Parse is Load for text at hand; path is what problems call it and what relative paths are relative to.
func Parse(path string, data []byte, env Env) (pipeline.Config, error) {
	r := &reader{file: path, env: env, places: map[string]place{}, anchors: map[string]ast.Node{}, given: map[string]string{}}
	root, err := r.tree(data)
	if err != nil {
		return pipeline.Config{}, err
	}
	cfg := r.config(root)
	var wrong pipeline.Problems
	if errors.As(cfg.Validate(), &wrong) {
		for _, p := range wrong {
			r.judge(p)
		}
	}
	if len(r.problems) == 0 {
		return cfg, nil
	}
	r.problems.sort()
	for i := range r.problems {
		r.problems[i].Text = r.scrub(r.problems[i].Text)
	}
	return pipeline.Config{}, r.problems
}

// tree parses the text. The parser stops at the first error of syntax; nothing of the file's text is quoted.
func (r *reader) tree(data []byte) (root ast.Node, err error) {
	defer func() {
		if recover() != nil { // the parser is not ours, and it has panicked on odd files before
			root, err = nil, Problems{{File: r.file, Text: "this is not YAML"}}
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	var syntax *yaml.SyntaxError
	switch {
	case errors.As(err, &syntax) && syntax.Token != nil && syntax.Token.Position != nil:
		at := syntax.Token.Position
		return nil, Problems{{r.file, at.Line, at.Column, "this is not YAML: " + quoted.ReplaceAllString(syntax.Message, `"..."`)}}
	case err != nil:
		return nil, Problems{{File: r.file, Text: "this is not YAML"}}
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			at := placeOf(doc.Body)
			return nil, Problems{{r.file, at.line, at.column, "a second document begins here: one file is one configuration"}}
		}
		root = doc.Body
	}
	if root == nil {
		return nil, Problems{{File: r.file, Text: "the file is empty: `kferry config example` prints one to begin with"}}
	}
	collectAnchors(root, r.anchors)
	return root, nil
}

var quoted = regexp.MustCompile(`"[^"]{2,}"`)

func readBounded(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("the file has %d bytes, the limit is %d", info.Size(), limit)
	}
	return os.ReadFile(path)
}

// reason is the error without the path, which the sentence around it names.
func reason(err error) string {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// beside makes a path of the file relative to the file's folder.
func (r *reader) beside(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(r.file), path)
}

// judge adds a problem of the values that were read, at the nearest place that is in the file. What could not be read is not judged too.
func (r *reader) judge(p pipeline.Problem) {
	for _, path := range r.unread {
		if within(p.Path, path) || within(path, p.Path) {
			return
		}
	}
	for at := p.Path; ; {
		if where, ok := r.places[at]; ok {
			r.problems = append(r.problems, Problem{r.file, where.line, where.column, p.Error()})
			return
		}
		cut := strings.LastIndexAny(at, ".[")
		if cut < 0 {
			r.problems = append(r.problems, Problem{File: r.file, Text: p.Error()})
			return
		}
		at = at[:cut]
	}
}

// within reports whether path is outer or below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
