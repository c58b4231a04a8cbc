package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"kferry/cmd/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output collects what a command writes while others read it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// kferry runs one command line to its end.
func kferry(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "link.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Wrong usage and wrong configuration exit with 2, print nothing on stdout, and say everything once.
func TestWrongUsage(t *testing.T) {
	wrong := writeFile(t, "links: []\nmemroy: 1GiB\n")
	empty := writeFile(t, `
clusters: { east: { bootstrap: ["127.0.0.1:1"] }, west: { bootstrap: ["127.0.0.1:2"] } }
links: [{ from: east, to: west }]
admin: { listen: "" }
`)
	noCA := writeFile(t, `
clusters: { east: { bootstrap: ["127.0.0.1:1"], tls: { ca: /none.pem } }, west: { bootstrap: ["127.0.0.1:2"] } }
links: [{ from: east, to: west }]
`)
	which := "kferry: which configuration? Name it with -c FILE; `kferry config example migration` prints one to begin with\n"
	examples := strings.Join(config.Examples(), ", ")
	for _, test := range []struct{ args, want string }{
		{"rn", "kferry: unknown command \"rn\" for \"kferry\"\n\nDid you mean this?\n\trun\n\n"},
		{"config prnt", "kferry: unknown command \"prnt\" for \"kferry config\"\n"},
		{"run", which},
		{"config print", which},
		{"run --fast", "kferry: unknown flag: --fast\n"},
		{"run -c", "kferry: flag needs an argument: 'c' in -c\n"},
		{"run link.yaml", "kferry: unknown command \"link.yaml\" for \"kferry run\"\n"},
		{"config example", "kferry: which example? Name one of " + examples + "\n"},
		{"config example hub", "kferry: there is no example \"hub\": the nearest is \"fan-out\"; all are " + examples + "\n"},
		{"run -c /none.yaml", "/none.yaml: no such file or directory\n"},
		{"run -c " + wrong, wrong + ": clusters: there is no cluster: name at least two, each with bootstrap\n" +
			wrong + ":1:1: links: there is no link: name at least one, with from and to\n" +
			wrong + ":2:1: unknown key \"memroy\": the nearest known key is \"memory\"\n"},
		{"run -c " + noCA, "kferry: cluster east: TLS mismatch: read ca: open /none.pem: no such file or directory\n"},
		{"status -c " + empty, "kferry: admin.listen is empty in this configuration, so there is nothing to ask\n"},
		{"status --admin 9464", "kferry: \"9464\" is not HOST:PORT\n"},
	} {
		code, stdout, stderr := kferry(t, strings.Fields(test.args)...)
		if code != exitRefused || stdout != "" {
			t.Errorf("%s: exit %d, stdout %q", test.args, code, stdout)
		}
		if diff := cmp.Diff(test.want, stderr); diff != "" {
			t.Errorf("%s: %s", test.args, diff)
		}
	}
}

func TestHelpIsNoError(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"config"}, {"run", "--help"}, {"help", "status"}, {"completion", "bash"}} {
		if code, stdout, stderr := kferry(t, args...); code != 0 || stdout == "" || stderr != "" {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestExamplesPrintAndLoad(t *testing.T) {
	for _, name := range config.Examples() {
		for _, site := range []string{"EAST", "WEST", "HUB", "ORIGIN", "NEW"} {
			t.Setenv(site+"_PASSWORD", "hunter2")
		}
		code, example, stderr := kferry(t, "config", "example", name)
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit %d, %s", name, code, stderr)
		}
		code, effective, stderr := kferry(t, "config", "print", "-c", writeFile(t, example))
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit %d, %s", name, code, stderr)
		}
		if !strings.Contains(effective, `password: "***"`) || strings.Contains(effective, "hunter2") {
			t.Errorf("%s: the password is not masked:\n%s", name, effective)
		}
		code, effective, _ = kferry(t, "config", "print", "--json", "-c", writeFile(t, example))
		if code != 0 || !json.Valid([]byte(effective)) || strings.Contains(effective, "hunter2") {
			t.Errorf("%s: exit %d, %s", name, code, effective)
		}
	}
}

func TestVersion(t *testing.T) {
	v := readVersion()
	code, stdout, _ := kferry(t, "version")
	if !strings.HasPrefix(stdout, "kferry "+v.Version) || !strings.HasSuffix(stdout, v.Go+" "+v.Platform+"\n") || code != 0 {
		t.Errorf("exit %d, %q", code, stdout)
	}
	code, stdout, _ = kferry(t, "version", "--json")
	var got buildVersion
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || got != v || code != 0 {
		t.Errorf("exit %d, %q, %v", code, stdout, err)
	}
}

func TestExitCodes(t *testing.T) {
	f := func(err error, want int) {
		t.Helper()
		if got := exitCode(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
	f(context.Canceled, exitFailed)
	f(exit(3, context.Canceled), 3)
	f(config.Problems{{Text: "x"}}, exitRefused)
}
