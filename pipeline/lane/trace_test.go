package lane

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"

	"kferry/batch"
)

var update = flag.Bool("update", false, "rewrite testdata from what the machine does; read the difference before you commit it")

// TestTraces plays the commands of testdata/*.txt to a machine and compares what it decides. A trace is blocks of one
// command line and, indented, the actions that came of it and the state behind them. Comments begin with #.
//
//	new [depth=100] [held=1000] [src=0] [dst=0] [seq=0] [epoch=0] [maxseq=2147483647] [shared=false]
//	open | open-failed | saved | stop | abort | bounds START END | bounds-failed
//	deliver [BASE+COUNT[:control|:abort=PID|:commit=PID|:txn=PID|:empty|:holes|:old|:codec=N|:bad|:epoch=N]...]
//	        [hw=N] [lso=N] [start=N] [gen=N] [code=NAME] [needs=BYTES] [diverging=EPOCH@OFFSET] [aborted=PID@OFFSET]...
//	ack BASE... | lost [N] | unsent [N] | fail CODE [message]
//	look end=N [last=N] [epoch=N] [written=N next=N] | look-failed WHY
//	recoded TICKET COUNT... | recoded TICKET corrupt|too-large|undecoded
//	rules [max=BYTES] [keep=true] [avoid=BITS]
//	tick DURATION | wait (until the deadline) | park REASON
//
// BASE+COUNT is 100 bytes of source offsets BASE to BASE+COUNT-1. What is not given is: hw, lso: the end of the last batch;
// gen: the cursor's; epoch of a look: the lane's, if last is given.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			tr := &trace{t: t, pool: batch.NewPool(0), now: time.Unix(1_700_000_000, 0), asked: make(map[uint32]bool)}
			var got bytes.Buffer
			played := false
			defer func() {
				if !played {
					t.Logf("so far:\n%s", got.String())
				}
			}()
			for line := range strings.Lines(string(want)) {
				switch {
				case strings.HasPrefix(line, "  "): // an old answer
				case strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"):
					got.WriteString(line)
				default:
					got.WriteString(line)
					tr.play(&got, strings.Fields(line))
				}
			}
			tr.end()
			played = true
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s: decisions differ (-want +got):\n%s", file, diff)
			}
		})
	}
}

// trace is one machine under test, and what the shell would know.
type trace struct {
	t    *testing.T
	pool *batch.Pool
	m    *Machine
	now  time.Time
	sink []*Entry // borrowed, oldest first
	open bool     // asked for, and without an answer
	look bool
	save bool

	asked map[uint32]bool // re-encodings without an answer
}

// end takes the machine down and looks for buffers that are still out.
func (tr *trace) end() {
	tr.m.Abort(tr.now)
	for len(tr.sink) > 0 {
		tr.complete(Completion{Outcome: Lost})
	}
	if n := tr.pool.InUse(); n != 0 {
		tr.t.Errorf("%d bytes of buffers not released at the end: %v", n, tr.pool.Open())
	}
}

// answered notes that a question was answered; one that was not put is a mistake of the trace.
func (tr *trace) answered(asked *bool) {
	if !*asked {
		tr.t.Fatal("an answer that nobody asked for")
	}
	*asked = false
}

func (tr *trace) complete(c Completion) {
	if len(tr.sink) == 0 {
		tr.t.Fatalf("an answer, but the sink holds nothing")
	}
	c.Entry = tr.sink[0]
	tr.sink = tr.sink[1:]
	tr.m.Complete(c, tr.now)
}

func (tr *trace) play(out *bytes.Buffer, words []string) {
	args := words[1:]
	named := func(name string, or int64) int64 {
		for _, a := range args {
			if v, ok := strings.CutPrefix(a, name+"="); ok {
				return tr.number(v)
			}
		}
		return or
	}
	m := tr.m
	switch words[0] {
	case "new":
		opts := DefaultOptions(int(named("depth", 100)), named("held", 1000))
		opts.MaxSequence = named("maxseq", opts.MaxSequence)
		id := batch.Identity{ProducerID: 77, Epoch: int16(named("epoch", 0))}
		at := Position{Src: named("src", 0), SrcEpoch: -1, Dst: named("dst", 0), Seq: named("seq", 0)}
		tr.m = NewMachine(&opts, id, at, named("shared", 0) != 0, tr.now)
	case "open", "open-failed":
		tr.answered(&tr.open)
		if words[0] == "open" {
			m.Opened(tr.now)
		} else {
			m.OpenFailed(tr.now)
		}
	case "saved":
		tr.answered(&tr.save)
		m.Saved(tr.now)
	case "stop":
		m.Stop(tr.now)
	case "abort":
		m.Abort(tr.now)
	case "park":
		m.Park(Reason(args[0]), "", tr.now)
	case "bounds":
		m.SourceBounds(tr.number(args[0]), tr.number(args[1]), tr.now)
	case "bounds-failed":
		m.BoundsFailed(tr.now)
	case "deliver":
		d := tr.delivery(args)
		d.Gen = uint32(named("gen", int64(m.gen)))
		m.Deliver(d, tr.now)
	case "ack":
		for _, base := range args {
			tr.complete(Completion{Outcome: Acked, Base: tr.number(base)})
		}
	case "lost", "unsent":
		outcome := map[string]Outcome{"lost": Lost, "unsent": Unsent}[words[0]]
		for range tr.number(strings.Join(append(args, "1")[:1], "")) {
			tr.complete(Completion{Outcome: outcome})
		}
	case "fail":
		tr.complete(Completion{Outcome: Failed, Code: tr.code(args[0]), Message: strings.Join(args[1:], " ")})
	case "look":
		tr.answered(&tr.look)
		l := LookResult{End: named("end", -1), Last: int32(named("last", -1)), Epoch: -1}
		l.Known = l.Last >= 0
		if l.Known {
			l.Epoch = m.id.Epoch
		}
		l.Epoch = int16(named("epoch", int64(l.Epoch)))
		l.Written, l.NextDst = named("written", -1), named("next", m.ack.Dst)
		if l.Scanned = l.Written >= 0; !l.Scanned {
			l.Written, l.NextDst = 0, 0
		}
		m.LookedUp(l, tr.now)
	case "recoded":
		tr.recoded(uint32(tr.number(args[0])), args[1:])
	case "rules":
		m.SetRules(Rules{MaxBytes: int(named("max", 0)), KeepAppendTime: named("keep", 0) != 0, Avoid: uint8(named("avoid", 0))}, tr.now)
	case "look-failed":
		tr.answered(&tr.look)
		m.LookFailed(strings.Join(args, " "), tr.now)
	case "tick":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			tr.t.Fatal(err)
		}
		tr.now = tr.now.Add(d)
		m.Tick(tr.now)
	case "wait":
		d := m.Deadline()
		if d.IsZero() {
			tr.t.Fatal("wait: the machine wishes for no tick")
		}
		fmt.Fprintf(out, "  after %s\n", d.Sub(tr.now))
		tr.now = d
		m.Tick(tr.now)
	default:
		tr.t.Fatalf("unknown command %q", words[0])
	}
	for _, a := range tr.m.Actions() {
		tr.print(out, a)
	}
	tr.state(out)
}

// recoded answers for a re-encoding: with the counts of its parts, or with what is wrong.
func (tr *trace) recoded(ticket uint32, words []string) {
	if !tr.asked[ticket] {
		tr.t.Fatalf("nobody asked for re-encoding %d", ticket)
	}
	delete(tr.asked, ticket)
	if len(words) == 1 {
		if err := map[string]error{"corrupt": ErrCorrupt, "too-large": ErrTooLarge, "undecoded": ErrUndecoded}[words[0]]; err != nil {
			tr.m.Recoded(ticket, nil, err, tr.now)
			return
		}
	}
	var parts []Part
	for _, w := range words {
		b := plain(0, int32(tr.number(w)))
		b.PartitionLeaderEpoch = -1
		parts = append(parts, Part{Batch: fetched(tr.t, tr.pool, sealed(b))[0]})
	}
	tr.m.Recoded(ticket, parts, nil, tr.now)
}

func (tr *trace) print(out *bytes.Buffer, a Action) {
	switch a.Kind {
	case Send:
		tr.sink = append(tr.sink, a.Entry)
		b := a.Entry.Batch
		fmt.Fprintf(out, "  send %d+%d epoch %d seq %d\n", b.BaseOffset(), b.Count(),
			binary.BigEndian.Uint16(a.Entry.Header[51:]), binary.BigEndian.Uint32(a.Entry.Header[53:]))
	case OpenSink:
		tr.open = true
		fmt.Fprintln(out, "  open sink")
	case CloseSink:
		fmt.Fprintln(out, "  close sink")
	case Look:
		tr.look = true
		fmt.Fprintf(out, "  look%s\n", map[bool]string{true: " with a scan"}[a.Scan])
	case Seek:
		fmt.Fprintf(out, "  seek %d leader epoch %d\n", a.Src, a.Epoch)
	case Ask:
		fmt.Fprintln(out, "  ask")
	case Hold:
		fmt.Fprintln(out, "  hold")
	case Bounds:
		fmt.Fprintln(out, "  bounds")
	case Recode:
		tr.asked[a.Ticket] = true
		fmt.Fprintf(out, "  recode %d: %d-%d, %s, from %d\n", a.Ticket, a.Batch.BaseOffset(), a.Batch.NextOffset()-1, a.Plan.Reason, a.Plan.From)
		a.Batch.Release()
	case Save:
		tr.save = true
		fmt.Fprintln(out, "  save")
	case Report:
		fmt.Fprintf(out, "  report at %d: %s\n", a.Src, a.Text)
	default:
		tr.t.Fatalf("unknown action %d", a.Kind)
	}
}

func (tr *trace) state(out *bytes.Buffer) {
	var s Status
	tr.m.status(&s)
	fmt.Fprintf(out, "  = %s", s.State)
	if s.Reason != NoReason {
		fmt.Fprintf(out, "(%s)", s.Reason)
	}
	fmt.Fprintf(out, " src=%d dst=%d seq=%d read=%d held=%d queued=%d window=%d sink=%d", s.Src, s.Dst, s.Seq, s.Read, s.Held, s.Queued, s.Window, s.AtSink)
	if s.State == Stopped && s.AtSink == 0 {
		fmt.Fprintf(out, " clean=%t", s.Clean)
	}
	if s.Detail != "" {
		fmt.Fprintf(out, " %q", s.Detail)
	}
	out.WriteString("\n")
}

func (tr *trace) number(s string) int64 {
	if s == "true" {
		return 1
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		tr.t.Fatal(err)
	}
	return n
}

// code finds an error code by its name.
func (tr *trace) code(name string) int16 {
	for code := int16(-1); code < math.MaxInt8; code++ {
		if err := kerr.TypedErrorForCode(code); err != nil && err.Message == name && err.Code == code {
			return code
		}
	}
	tr.t.Fatalf("no error code is named %q", name)
	return 0
}

func (tr *trace) delivery(args []string) Delivery {
	d := Delivery{HighWatermark: tr.m.hw, LogStart: -1, LastStable: -2}
	var wires [][]byte
	given := false
	for _, a := range args {
		if place, is, ok := strings.Cut(a, "="); ok && !strings.Contains(place, "+") {
			switch place {
			case "hw":
				d.HighWatermark, given = tr.number(is), true
			case "lso":
				d.LastStable = tr.number(is)
			case "start":
				d.LogStart = tr.number(is)
			case "needs":
				d.Needs = tr.number(is)
			case "code":
				d.Code = tr.code(is)
			case "diverging":
				epoch, end, _ := strings.Cut(is, "@")
				d.Diverging = &Diverging{Epoch: int32(tr.number(epoch)), EndOffset: tr.number(end)}
			case "aborted":
				pid, first, _ := strings.Cut(is, "@")
				d.Aborted = append(d.Aborted, AbortedTxn{ProducerID: tr.number(pid), FirstOffset: tr.number(first)})
			case "gen":
			default:
				tr.t.Fatalf("unknown word %q", a)
			}
			continue
		}
		place, what, _ := strings.Cut(a, ":")
		base, n, ok := strings.Cut(place, "+")
		if !ok {
			tr.t.Fatalf("unknown word %q", a)
		}
		b := plain(tr.number(base), int32(tr.number(n)))
		if !given {
			d.HighWatermark = max(d.HighWatermark, b.FirstOffset+int64(b.NumRecords))
		}
		damage := false
		for _, w := range strings.Split(what, ":") {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "":
			case "txn":
				b = inTxn(b, tr.number(value), 0)
			case "abort":
				b = marker(b.FirstOffset, tr.number(value), 0, batch.Abort)
			case "commit":
				b = marker(b.FirstOffset, tr.number(value), 0, batch.Commit)
			case "empty":
				b.NumRecords, b.Records = 0, nil
			case "holes":
				b.NumRecords--
			case "old":
				b.Magic = 1
			case "epoch":
				b.PartitionLeaderEpoch = int32(tr.number(value))
			case "codec":
				b.Attributes |= int16(tr.number(value))
			case "bad":
				damage = true
			default:
				tr.t.Fatalf("unknown word %q in %q", w, a)
			}
		}
		w := sealed(b)
		if damage {
			w[len(w)-1] ^= 1
		}
		wires = append(wires, w)
	}
	if d.LastStable == -2 {
		d.LastStable = d.HighWatermark
	}
	d.Batches = fetched(tr.t, tr.pool, wires...)
	return d
}
