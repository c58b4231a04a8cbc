package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docKey is a row of docs/configuration.md: `path` | default | type | …
var docKey = regexp.MustCompile("(?m)^\\| `([a-z_.<>\\[\\]]+)` \\| ([^|]*) \\|")

func documentedKeys(t *testing.T) (paths []string, defaults map[string]string) {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	defaults = make(map[string]string)
	for _, row := range docKey.FindAllStringSubmatch(string(doc), -1) {
		paths = append(paths, row[1])
		defaults[row[1]] = row[2]
	}
	return paths, defaults
}

// Every key of docs/configuration.md is known where the document says it is.
func TestDocumentedKeysAreKnown(t *testing.T) {
	paths, _ := documentedKeys(t)
	if len(paths) < 25 {
		t.Fatalf("only %v are found", paths)
	}
	for _, path := range paths {
		text := "x"
		steps := strings.Split(path, ".")
		for i := len(steps) - 1; i >= 0; i-- {
			step, isList := strings.CutSuffix(steps[i], "[]")
			if isList {
				text = "[" + text + "]"
			}
			text = fmt.Sprintf("{ %s: %s }", strings.Trim(step, "<>"), text)
		}
		_, err := Parse("x.yaml", []byte(text), env())
		if err == nil || strings.Contains(err.Error(), "unknown key") {
			t.Errorf("%s: %s: %v", path, text, err)
		}
	}
}

// Every key that schema.go reads has a row: the last names of all documented paths and their parents are its names, each as often.
func TestKnownKeysAreDocumented(t *testing.T) {
	schema, err := os.ReadFile("schema.go")
	if err != nil {
		t.Fatal(err)
	}
	var known, shown []string
	for _, m := range regexp.MustCompile(`field\{"([a-z_]+)"`).FindAllStringSubmatch(string(schema), -1) {
		known = append(known, m[1])
	}
	paths, _ := documentedKeys(t)
	seen := make(map[string]bool)
	for _, path := range paths {
		steps := strings.Split(strings.ReplaceAll(path, "[]", ""), ".")
		for i, step := range steps {
			at := strings.Join(steps[:i+1], ".")
			if !seen[at] && !strings.HasPrefix(step, "<") {
				shown = append(shown, step)
			}
			seen[at] = true
		}
	}
	slices.Sort(known)
	slices.Sort(shown)
	if d := cmp.Diff(known, shown); d != "" {
		t.Errorf("-schema.go +docs/configuration.md\n%s", d)
	}
}

// A default in backticks is what `kferry config print` shows for a file that leaves the key out.
func TestDocumentedDefaults(t *testing.T) {
	cfg, err := Parse("x.yaml", []byte(two+"links: [{ from: east, to: west }]"), env())
	if err != nil {
		t.Fatal(err)
	}
	out, err := PrintJSON(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var printed any
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	_, defaults := documentedKeys(t)
	checked := 0
	for path, value := range defaults {
		want, ok := strings.CutPrefix(value, "`")
		if !ok {
			continue
		}
		at := printed
		for _, step := range strings.Split(path, ".") {
			name, isList := strings.CutSuffix(step, "[]")
			at = at.(map[string]any)[name]
			if isList {
				at = at.([]any)[0]
			}
		}
		got, err := json.Marshal(at)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.TrimSuffix(want, "`"); want != strings.Trim(string(got), `"`) {
			t.Errorf("%s: documented %s, printed %s", path, want, got)
		}
		checked++
	}
	if checked < 12 {
		t.Errorf("only %d defaults are compared", checked)
	}
}
