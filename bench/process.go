package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"kferry/pipeline/kafkatest"
)

const (
	stopGrace    = 10 * time.Second // from the request to end until the kill
	stderrKept   = 4 << 10
	settlePeriod = 20 * time.Millisecond
)

// Host starts the processes of a scenario.
type Host struct {
	Self     []string      // the command that runs Role: its name and configuration are appended
	Kferry   string        // the binary under test; built from the tree around the working directory where empty
	Dir      string        // for configurations and the built binary; the caller removes it
	Progress io.Writer     // a line for each run
	Settle   time.Duration // from the end of a run until the target has to have counted all; 10 s where zero
}

// Cost is one measured process, whole, and what arrived at the target for it.
type Cost struct {
	CPU     time.Duration // user and system, from start to end
	Wall    time.Duration // from the first append at the target to the last
	Batches int64
	Records int64
	Bytes   int64
}

// end is a running source, target, stream source or sink.
type end struct {
	ready
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *tail
}

// start runs a role that is an end and waits until it listens.
func (h *Host) start(ctx context.Context, role string, config any) (*end, error) {
	name, args, err := h.role(role, config)
	if err != nil {
		return nil, err
	}
	cmd := command(ctx, name, args...)
	e := &end{cmd: cmd, stderr: new(tail)}
	cmd.Stderr = e.stderr
	if e.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.out = json.NewDecoder(out)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	if err := e.out.Decode(&e.ready); err != nil {
		e.stop()
		return nil, fmt.Errorf("start %s: no address: %w%s", role, err, e.stderr)
	}
	return e, nil
}

// role is the command line of a role.
func (h *Host) role(role string, config any) (name string, args []string, err error) {
	text, err := json.Marshal(config)
	return h.Self[0], append(h.Self[1:len(h.Self):len(h.Self)], role, string(text)), err
}

// command asks a process to end by SIGTERM when ctx is over, and kills it when it does not.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	return cmd
}

func (e *end) tally() (t Tally, err error) {
	if _, err = io.WriteString(e.in, "\n"); err == nil {
		err = e.out.Decode(&t)
	}
	if err != nil {
		err = fmt.Errorf("ask for the tally: %w%s", err, e.stderr)
	}
	return t, err
}

// settled waits until done holds for the tally: the last bytes may still be in a socket when the process under test ends.
func (h *Host) settled(ctx context.Context, e *end, done func(Tally) bool) (Tally, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Settle, 10*time.Second))
	defer cancel()
	tick := time.NewTicker(settlePeriod)
	defer tick.Stop()
	for {
		t, err := e.tally()
		if err != nil || done(t) {
			return t, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return t, fmt.Errorf("target holds %d records, %d bytes, %d duplicates, %d refused (%s): not what was sent",
				t.Records, t.Bytes, t.Duplicates, t.Refused, t.Refusal)
		}
	}
}

// stop closes the end's input, upon which it leaves.
func (e *end) stop() {
	e.in.Close()
	timer := time.AfterFunc(stopGrace, func() { _ = e.cmd.Process.Kill() })
	defer timer.Stop()
	_ = e.cmd.Wait() // an end that left badly has already shown it in its answers
}

// run starts a process that is measured; its words go to a file of its name.
func (h *Host) run(name string, args ...string) (*kafkatest.Process, error) {
	return kafkatest.StartProcess(kafkatest.Command{Name: name, Args: args, Log: filepath.Join(h.Dir, filepath.Base(name)+".log")})
}

// measure runs a process to its end and returns its CPU time, from the kernel's accounting at exit.
func (h *Host) measure(ctx context.Context, name string, args ...string) (time.Duration, error) {
	p, err := h.run(name, args...)
	if err != nil {
		return 0, err
	}
	defer p.Stop()
	if err := p.Wait(ctx); err != nil {
		return 0, err
	}
	user, sys, err := p.CPU()
	return user + sys, err
}

// kferry is the binary under test.
func (h *Host) kferry(ctx context.Context) (string, error) {
	if h.Kferry != "" {
		return h.Kferry, nil
	}
	path := filepath.Join(h.Dir, "kferry")
	build := command(ctx, "go", "build", "-o", path, "kferry/cmd/kferry")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kferry: %w\n%s", err, bytes.TrimSpace(out))
	}
	h.Kferry = path
	return path, nil
}

// tail keeps the end of what a process says, for its error.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*stderrKept {
		t.b = append(t.b[:0], t.b[len(t.b)-stderrKept:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	if len(t.b) == 0 {
		return ""
	}
	return "; it said:\n" + strings.TrimSpace(string(t.b[max(0, len(t.b)-stderrKept):]))
}
