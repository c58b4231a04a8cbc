package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"kferry/pipeline/kafkatest"
)

// built is kferry, built by the first test that needs it; TestMain removes it.
var built struct {
	sync.Once
	dir string
	err error
}

// kferry is the path of the program.
func kferry(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "kferry-bin-"); built.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", built.dir, "kferry/cmd/kferry").CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build kferry: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "kferry")
}

// program is kferry as its own process.
type program struct {
	t      *testing.T
	dir    string
	stdout *os.File
	*kafkatest.Process
}

// launch starts kferry with a configuration and arguments behind `-c FILE`.
func launch(t *testing.T, yaml, command string, args ...string) *program {
	t.Helper()
	p := &program{t: t, dir: t.TempDir()}
	file := filepath.Join(p.dir, "link.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.stdout, err = os.Create(filepath.Join(p.dir, "stdout")); err != nil {
		t.Fatal(err)
	}
	p.Process, err = kafkatest.StartProcess(kafkatest.Command{Name: kferry(t), Args: append([]string{command, "-c", file}, args...),
		Dir: p.dir, Stdout: p.stdout, Log: filepath.Join(p.dir, "stderr")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill9()
		p.stdout.Close()
		if t.Failed() {
			t.Logf("kferry said:\n%s", p.Tail())
		}
	})
	return p
}

// terminate sends SIGTERM.
func (p *program) terminate() { p.Signal(syscall.SIGTERM) }

// exit waits for the end and returns the exit code.
func (p *program) exit() int {
	p.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("kferry does not end"))
	defer cancel()
	err := p.Wait(ctx)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	p.t.Fatal(err)
	return -1
}

// ends wants an exit code.
func (p *program) ends(code int) {
	p.t.Helper()
	if got := p.exit(); got != code {
		p.t.Fatalf("kferry ended with %d, want %d", got, code)
	}
}

func (p *program) output() []byte { return p.file("stdout") }
func (p *program) said() []byte   { return p.file("stderr") }

func (p *program) file(name string) []byte {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// waitSaid waits for words on standard error.
func (p *program) waitSaid(words string) {
	p.t.Helper()
	waitFor(p.t, fmt.Sprintf("kferry to say %q", words), func() bool { return bytes.Contains(p.said(), []byte(words)) })
}

// yaml is a configuration file for one link from src to dst; more keys of the link may follow, a line each.
func yaml(name string, from, to []string, include string, link ...string) string {
	s := fmt.Sprintf(`clusters:
  %[1]ssrc: { bootstrap: ["%[2]s"] }
  %[1]sdst: { bootstrap: ["%[3]s"] }
links:
  - from: %[1]ssrc
    to: %[1]sdst
    topics: { include: ["%[4]s"] }
    refresh: 1s
`, name, from[0], to[0], include)
	for _, l := range link {
		s += "    " + l + "\n"
	}
	return s + "memory: 64MiB\nadmin: { listen: \"\" }\n"
}
