package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
)

// pair is two embedded clusters and a configuration between them.
type pair struct {
	east, west *kgo.Client
	file       string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{}
	text := "clusters:\n"
	for alias, into := range map[string]**kgo.Client{"east": &p.east, "west": &p.west} {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(alias))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		*into, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*into).Close)
		text += fmt.Sprintf("  %s: { bootstrap: [%q] }\n", alias, c.ListenAddrs()[0])
	}
	text += "links: [{ from: east, to: west, refresh: 1s }]\nadmin: { listen: \"127.0.0.1:0\" }\nlog: { format: json }\n"
	p.file = writeFile(t, text)
	return p
}

func (p *pair) produce(t *testing.T, topic string, partitions int32, records int) {
	t.Helper()
	if _, err := kadm.NewClient(p.east).CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	for i := range records {
		r := &kgo.Record{Topic: topic, Key: fmt.Append(nil, i), Value: []byte("value")}
		if err := p.east.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// copied counts the records of a topic on west.
func (p *pair) copied(t *testing.T, topic string) (records int64) {
	t.Helper()
	ends, err := kadm.NewClient(p.west).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { records += o.Offset })
	return records
}

func TestRunUntilCaughtUp(t *testing.T) {
	p := newPair(t)
	p.produce(t, "orders", 3, 50)
	code, stdout, stderr := kferry(t, "run", "-c", p.file, "--until-caught-up", "--json")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	var got summary
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	want := summary{CaughtUp: true, Links: []linkSummary{{Name: "east.west", Records: 50, Partitions: 3}}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(summary{}, "Seconds"), cmpopts.IgnoreFields(linkSummary{}, "Bytes", "Lanes")); diff != "" {
		t.Error(diff)
	}
	if got.Links[0].Bytes == 0 || got.Seconds == 0 {
		t.Errorf("bytes and seconds are missing: %s", stdout)
	}
	if n := p.copied(t, "east.orders"); n != 50 {
		t.Errorf("%d records on west, want 50", n)
	}
	code, stdout, stderr = kferry(t, "run", "-c", p.file, "--until-caught-up")
	if code != 0 || !strings.HasPrefix(stdout, "link east.west: 0 records, 0 B in 3 partitions, 0 B/s\ncaught up after ") {
		t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
	}
	if n := p.copied(t, "east.orders"); n != 50 {
		t.Errorf("%d records on west after the second run, want 50", n)
	}
}

// adminAddr waits for the line of the log that says where the admin server listens.
func adminAddr(t *testing.T, stderr *output) string {
	t.Helper()
	var addr string
	eventually(t, func() error {
		lines := bufio.NewScanner(strings.NewReader(stderr.String()))
		for lines.Scan() {
			var line struct{ Msg, Addr string }
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				return err
			}
			if line.Msg == "admin listens" {
				addr = line.Addr
				return nil
			}
		}
		return errors.New("no line says where admin listens")
	})
	return addr
}

// eventually polls until f is content, for 30 seconds at most.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-tick.C:
		}
	}
}

// A kferry that runs answers `status`; SIGTERM lets it finish and exit with 0.
func TestRunStatusAndSIGTERM(t *testing.T) {
	p := newPair(t)
	p.produce(t, "orders", 2, 10)
	var stdout, stderr output
	ended := make(chan int, 1)
	go func() { ended <- run(t.Context(), []string{"run", "-c", p.file}, &stdout, &stderr) }()
	addr := adminAddr(t, &stderr)

	var s pipeline.Status
	eventually(t, func() error {
		code, out, errs := kferry(t, "status", "--admin", addr, "--json")
		if code != 0 {
			return fmt.Errorf("exit %d: %s", code, errs)
		}
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			return err
		}
		if len(s.Links) != 1 || s.Links[0].Records != 10 || s.Links[0].LagRecords != 0 {
			return fmt.Errorf("not there yet: %s", out)
		}
		return nil
	})
	code, out, errs := kferry(t, "status", "--admin", addr, "--all")
	for _, want := range []string{"link east.west: east -> west, running\n", "partitions: 2 running\n", "behind: 0 records, 0.0 s\n",
		"copied: 10 records, ", "orders/0 -> east.orders: running at "} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %s: %q is not in\n%s", code, errs, want, out)
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case code := <-ended:
		if code != 0 || stdout.String() != "" {
			t.Errorf("exit %d, stdout %q\n%s", code, stdout.String(), stderr.String())
		}
	case <-time.After(40 * time.Second):
		t.Fatalf("does not stop\n%s", stderr.String())
	}
	if n := p.copied(t, "east.orders"); n != 10 {
		t.Errorf("%d records on west, want 10", n)
	}
	code, _, errs = kferry(t, "status", "--admin", addr)
	if want := "kferry: ask " + addr + ": dial tcp " + addr + ": connect: connection refused: is kferry running there, and is admin.listen this address?\n"; code != exitFailed || errs != want {
		t.Errorf("exit %d, %q, want %q", code, errs, want)
	}
}

// A job that is stopped before it is done says so and does not exit with 0.
func TestJobThatIsStopped(t *testing.T) {
	file := writeFile(t, `
clusters: { east: { bootstrap: ["127.0.0.1:1"] }, west: { bootstrap: ["127.0.0.1:2"] } }
links: [{ from: east, to: west }]
admin: { listen: "127.0.0.1:0" }
log: { format: json }
`)
	var stdout, stderr output
	ended := make(chan int, 1)
	go func() { ended <- run(t.Context(), []string{"run", "-c", file, "--until-caught-up"}, &stdout, &stderr) }()
	adminAddr(t, &stderr) // signals are taken from before that
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-ended; code != exitFailed || !strings.HasSuffix(stderr.String(), "\nkferry: stopped before all was copied: run it again to go on from here\n") {
		t.Errorf("exit %d\n%s", code, stderr.String())
	}
	if !strings.Contains(stdout.String(), "not caught up after ") {
		t.Errorf("stdout %q", stdout.String())
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	drained := 0
	s := &signals{came: make(chan os.Signal, 2), drain: func() { drained++ }, cancel: cancel, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	s.came <- syscall.SIGTERM
	s.came <- os.Interrupt
	s.watch(ctx)
	if drained != 1 || s.seen != 2 || context.Cause(ctx) != errAtOnce {
		t.Errorf("drained %d times, saw %d signals, ended by %v", drained, s.seen, context.Cause(ctx))
	}
}

func TestShowStatus(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := pipeline.Status{Started: now.Add(-90 * time.Second), MemoryBytes: 3 << 20, MemoryLimit: 1 << 30, Links: []pipeline.LinkStatus{{
		Name: "main", From: "east", To: "west", Phase: "running", Lanes: map[string]int{"running": 1, "parked": 1},
		LagRecords: 7, LagSeconds: 2.25, Records: 100, Bytes: 2560, Problems: map[string]string{"b": "no permission", "a": "too few partitions"},
		Partitions: []pipeline.LaneStatus{
			{Topic: "orders", Partition: 0, Target: "east.orders", State: "running", SrcOffset: 50, SrcEnd: 57},
			{Topic: "orders", Partition: 1, Target: "east.orders", State: "parked", SrcOffset: 50, SrcEnd: 50, Reason: "too-large", Detail: "2 MiB at 50", Cure: "raise max.message.bytes"},
		},
	}, {Name: "back", From: "west", To: "east", Phase: "connecting"}}}
	head := `up 1m30s, holds 3.0 MiB of 1.0 GiB

link main: east -> west, running
  partitions: 1 parked, 1 running
  behind: 7 records, 2.2 s
  copied: 100 records, 2.5 KiB
  ! a: too few partitions
  ! b: no permission
`
	parked := `  orders/1 -> east.orders: parked at 50 of 50
    too-large
    2 MiB at 50
    raise max.message.bytes
`
	tail := `
link back: west -> east, connecting
  partitions: none
  behind: 0 records, 0.0 s
  copied: 0 records, 0 B
`
	if diff := cmp.Diff(head+parked+tail, showStatus(s, false, now)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(head+"  orders/0 -> east.orders: running at 50 of 57\n"+parked+tail, showStatus(s, true, now)); diff != "" {
		t.Error(diff)
	}
}

func TestShowBytes(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536 << 10: "1.5 MiB", 1 << 30: "1.0 GiB", 1 << 52: "4096.0 TiB"} {
		if got := showBytes(n); got != want {
			t.Errorf("%v: got %s, want %s", n, got, want)
		}
	}
}

func TestLogger(t *testing.T) {
	f := func(cfg pipeline.LogConfig, want string) {
		t.Helper()
		var out output
		log := newLogger(cfg, &out)
		log.Debug("quiet")
		log.Warn("loud", "n", 1)
		if _, got, _ := strings.Cut(out.String(), "WARN"); got != want {
			t.Errorf("%v: %q", cfg, out.String())
		}
	}
	f(pipeline.LogConfig{Level: "info", Format: "text"}, " msg=loud n=1\n")
	f(pipeline.LogConfig{Level: "warn", Format: "json"}, "\",\"msg\":\"loud\",\"n\":1}\n")
	f(pipeline.LogConfig{Level: "error", Format: "text"}, "")
}
