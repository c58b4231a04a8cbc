package kafkatest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kferry/pipeline/kafkatest"
)

// orphanLog set makes the test binary a parent that starts a child and waits to be killed.
const orphanLog = "KFERRY_TEST_ORPHAN_LOG"

func start(t *testing.T, args ...string) *kafkatest.Process {
	t.Helper()
	p, err := kafkatest.StartProcess(kafkatest.Command{Name: args[0], Args: args[1:], Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill9)
	return p
}

func TestProcessTellsHowItEnded(t *testing.T) {
	err := start(t, "sh", "-c", "echo so it goes; exit 3").Wait(t.Context())
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "so it goes") {
		t.Errorf("wait: %v, want exit 3 and the log's tail", err)
	}
	if err := start(t, "true").Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := kafkatest.StartProcess(kafkatest.Command{Name: "no-such-program", Log: filepath.Join(t.TempDir(), "log")}); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("start: %v, want %v", err, exec.ErrNotFound)
	}
}

func TestProcessStops(t *testing.T) {
	p := start(t, "sleep", "600")
	p.Stop()
	p.Stop() // of one that has ended
	if err := p.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("after stop: %v, want SIGTERM's end", err)
	}
}

func TestProcessCountsCPU(t *testing.T) {
	p := start(t, "sh", "-c", "while :; do :; done")
	var user time.Duration
	for tick := time.Tick(10 * time.Millisecond); user < 50*time.Millisecond; <-tick {
		u, s, err := p.CPU()
		if err != nil {
			t.Fatal(err)
		}
		if u < user {
			t.Fatalf("user time went from %v back to %v", user, u)
		}
		user = u + s
	}
	p.Kill9()
	u, s, err := p.CPU()
	if err != nil || u+s < user-20*time.Millisecond {
		t.Errorf("after the end: %v + %v, %v, want at least %v", u, s, err, user)
	}
	if _, _, err := kafkatest.CPU(p.PID()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cpu of a pid that is gone: %v, want %v", err, os.ErrNotExist)
	}
}

// TestProcessDiesWithUs kills the parent of a child as kill -9 of a test binary would.
func TestProcessDiesWithUs(t *testing.T) {
	if log := os.Getenv(orphanLog); log != "" {
		p, err := kafkatest.StartProcess(kafkatest.Command{Name: "sleep", Args: []string{"600"}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("child %d\n", p.PID())
		<-p.Done()
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestProcessDiesWithUs$")
	parent.Env = append(os.Environ(), orphanLog+"="+filepath.Join(t.TempDir(), "log"))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "child ")))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child before: %v", err)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	deadline := time.After(10 * time.Second)
	for tick := time.Tick(10 * time.Millisecond); !gone(child); {
		select {
		case <-tick:
		case <-deadline:
			t.Fatal("the child outlives its parent by 10 s")
		}
	}
}

// gone tells whether a process has ended; a zombie that its new parent has not reaped yet has.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
