package kafkatest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	stopGrace = 20 * time.Second // between SIGTERM and SIGKILL
	tailBytes = 4 << 10          // of a log, shown with an error
)

// Command says what to run and where its output goes.
type Command struct {
	Name   string
	Args   []string
	Dir    string
	Env    []string // additions to our own environment, KEY=value
	Stdin  *os.File // nil: empty
	Stdout *os.File // nil: the log
	Log    string   // path of the log file, appended to: stderr, and stdout if it has no file of its own
}

// Process is a child that cannot outlive us: on Linux the kernel kills it when we die, however we die.
type Process struct {
	name  string
	log   string
	child *os.Process
	done  chan struct{} // closed when the child has ended, after err and last are set
	err   error
	last  *os.ProcessState
}

// StartProcess starts the command. The caller ends it by Stop or Kill9; the files in Stdin and Stdout stay the caller's.
func StartProcess(c Command) (*Process, error) {
	log, err := os.OpenFile(c.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	defer log.Close() // the child has its own copy

	cmd := exec.Command(c.Name, c.Args...)
	cmd.Dir = c.Dir
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if c.Stdin != nil {
		cmd.Stdin = c.Stdin
	}
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	dieWithParent(cmd)

	p := &Process{name: c.Name, log: c.Log, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

// run starts the child and waits for it on one OS thread: the kernel's "parent" in PR_SET_PDEATHSIG is the thread that
// forked, so were that thread to end early, as the runtime's idle threads do, the child would be killed with it.
func (p *Process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.child = cmd.Process
	started <- nil
	p.err = cmd.Wait()
	p.last = cmd.ProcessState
	close(p.done)
}

// PID is the child's process id.
func (p *Process) PID() int { return p.child.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child to end by itself; a non-zero exit comes back with the log's tail.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.Tail())
	}
	return nil
}

// Signal sends a signal; it does nothing once the child has ended.
func (p *Process) Signal(sig os.Signal) { _ = p.child.Signal(sig) }

// Stop asks the child to end, and kills it when it has not within 20 s. It returns when the child is gone.
func (p *Process) Stop() {
	p.Signal(syscall.SIGTERM)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-p.done:
	case <-grace.C:
		p.Kill9()
	}
}

// Kill9 kills the child and returns when it is gone.
func (p *Process) Kill9() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// CPU is what the child has used so far; after its end, all that it used, exactly.
func (p *Process) CPU() (user, sys time.Duration, err error) {
	select {
	case <-p.done:
		return p.last.UserTime(), p.last.SystemTime(), nil
	default:
		return CPU(p.child.Pid)
	}
}

// Tail is the end of the child's log, for a failed test.
func (p *Process) Tail() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	if _, err := f.Seek(max(0, size-tailBytes), io.SeekStart); err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(b), "?")
}
