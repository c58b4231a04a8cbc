package lane

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"kferry/batch"
	"kferry/pipeline/cluster"
)

// Cursor is the lane's place on the source. Its calls do not block.
type Cursor interface {
	MoveTo(src int64, epoch int32, gen uint32) // what is delivered under an older generation is not wanted any more
	Ask()                                      // fetch from here on
	Hold()                                     // stop asking; the place stays
	Bounds(ctx context.Context) (start, end int64, err error)
	Close()
}

// Stream carries a lane's entries to its target partition's leader, in the order of Send, one batch of this lane per
// request. Every entry sent is answered by one Complete, in order, also after Close and when the connection breaks.
type Stream interface {
	Send(entries []*Entry) // does not block, borrows the entries
	Budget() int           // bytes that its connection may have under way now
	Close()                // entries that were not written yet come back Unsent
}

// Sink is the target side of a lane.
type Sink interface {
	Open(to func(Completion)) (Stream, error)
	// Look asks the partition's leader about our last write. With scan it reads the headers of the log from position at.Dst.
	Look(ctx context.Context, id batch.Identity, at Position, scan bool) (LookResult, error)
}

// Recoder re-encodes what a target would refuse as it lies. It is injected: the data plane knows no codec.
type Recoder interface {
	// Recode borrows b and blocks until a worker is free and done, or ctx ends. The references of the parts are the caller's. Errors:
	// ErrCorrupt, ErrTooLarge, ErrUndecoded, wrapped.
	Recode(ctx context.Context, b batch.Batch, plan Plan) ([]Part, error)
}

// Checkpoint is what a restart needs to go on.
type Checkpoint struct {
	Position
	ID     batch.Identity
	Shared bool
	Clean  bool // all that was sent is covered by Position
}

// Status is a snapshot of a lane.
type Status struct {
	Checkpoint
	State                  State
	Queued, Window, AtSink int32 // batches delivered, numbered, with the sink
	Reason                 Reason
	Detail                 string
	Since                  time.Time
	Read                   int64 // source offset read next
	HighWatermark          int64 // of the source partition, -1 unknown
	LastStable             int64 // of the source partition, -1 unknown
	LogStart               int64 // of the source partition, -1 unknown
	Held, MayHold          int64 // bytes of batches that the lane holds, and from which on it asks for no more
	Counts                 Counts
	CaughtUp               time.Time // when the position last was the source's end; zero for never
}

// Lane is the shell around a Machine: one goroutine while there is work. Deliver may be called from the source's goroutines.
type Lane struct {
	machine *Machine
	cursor  Cursor
	sink    Sink
	recoder Recoder
	save    func(context.Context, Checkpoint) error
	log     func() *slog.Logger // made when there is something to say

	in     mailbox
	stream Stream
	asking context.Context // of questions to others; nil before the first
	hangUp context.CancelFunc
	wg     sync.WaitGroup
	timer  *time.Timer // of the machine's deadline

	ctx     context.Context
	started *sync.WaitGroup // nil before Start

	mu     sync.Mutex
	status Status // published after every wake
	moved  bool   // Checkpoint has not been taken by Moved
	notify func()
}

// New makes a lane around m. save stores a checkpoint durably before it returns. Start begins.
func New(m *Machine, cursor Cursor, sink Sink, recoder Recoder, save func(context.Context, Checkpoint) error, log func() *slog.Logger) *Lane {
	l := &Lane{machine: m, cursor: cursor, sink: sink, recoder: recoder, save: save, log: log}
	l.in.come.L = &l.in.mu
	m.status(&l.status) // not published: where a lane begins is no move, and Notify is still to come
	return l
}

// Stop asks the lane to hand over: what is in flight finishes, nothing new is sent, the lane ends.
func (l *Lane) Stop() { l.event(l.machine.Stop) }

// Park stops the lane for a reason that was found outside of it.
func (l *Lane) Park(r Reason, detail string) {
	l.event(func(now time.Time) { l.machine.Park(r, detail, now) })
}

// Start begins the work, in goroutines of wg, which also waits for the lane's end: that comes when Stop has been carried out, or after
// Abort; then the lane has given back all it held, once the sink has answered for all it borrowed, and its cursor is closed. What is
// asked of others is asked under ctx. There is a goroutine as long as there is work, see Retire.
func (l *Lane) Start(ctx context.Context, wg *sync.WaitGroup) {
	wg.Add(1) // for the lane itself: it lives on without a goroutine
	l.in.mu.Lock()
	l.ctx, l.started = ctx, wg
	l.posted()
}

// desk is what only a lane that works needs.
type desk struct {
	mail  letters // being read
	sends []*Entry
}

// work does what there is to do until the lane ends, or retires. What it calls is in methods of its own, so that lanes that wait have small
// stacks.
func (l *Lane) work() {
	cluster.StageLane.Enter()
	var d desk
	for {
		l.takeMail(&d.mail, time.Now())
		if !l.do(l.ctx, &d.sends, time.Now()) {
			l.end()
			l.started.Done()
			return
		}
		if !l.wait() {
			return
		}
	}
}

// takeMail gives the machine what has come in, acks first.
func (l *Lane) takeMail(mail *letters, now time.Time) {
	in := &l.in
	in.mu.Lock()
	in.letters, *mail = *mail, in.letters
	abort := in.abort
	in.abort = false
	in.mu.Unlock()
	if abort {
		l.machine.Abort(now)
	}
	for i := range mail.completions {
		l.machine.Complete(mail.completions[i], now)
	}
	at := 0
	for i := range mail.deliveries {
		d := &mail.deliveries[i]
		n := len(d.Batches)
		d.Batches = mail.batches[at : at+n]
		at += n
		l.machine.Deliver(*d, now)
	}
	for _, f := range mail.events {
		f(now)
	}
	l.machine.Tick(now)
	mail.reset()
}

// end closes what the lane had. What still comes in is released at once.
func (l *Lane) end() {
	if l.hangUp != nil {
		l.hangUp()
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.wg.Wait()
	l.cursor.Close()
	in := &l.in
	in.mu.Lock()
	in.closed = true
	for _, b := range in.batches {
		b.Release()
	}
	late := in.events
	in.letters = letters{}
	in.mu.Unlock()
	for _, f := range late {
		f(time.Now()) // what was re-encoded for nobody is given back
	}
	l.publish(time.Now())
}

// questions is the context of what is asked of others; it ends with the lane.
func (l *Lane) questions(ctx context.Context) context.Context {
	if l.asking == nil {
		l.asking, l.hangUp = context.WithCancel(ctx)
	}
	return l.asking
}

// do carries out the machine's actions and publishes a snapshot. It says whether the lane goes on.
func (l *Lane) do(ctx context.Context, sends *[]*Entry, now time.Time) (goes bool) {
	if l.stream != nil {
		l.machine.SetBudget(int64(l.stream.Budget()))
	}
	for {
		actions := l.machine.Actions()
		if len(actions) == 0 {
			break
		}
		again := false
		for i := range actions {
			a := actions[i]
			if a.Kind == Send {
				*sends = append(*sends, a.Entry)
				continue
			}
			l.flush(sends)
			if a.Kind == OpenSink {
				again = true
				continue // opened below: it is an event, and would write over the actions
			}
			l.act(ctx, a)
		}
		l.flush(sends)
		if !again {
			break
		}
		l.open(now)
	}
	l.publish(now)
	return l.machine.State() != Stopped || l.machine.Borrowed() > 0
}

func (l *Lane) flush(sends *[]*Entry) {
	if len(*sends) > 0 {
		l.stream.Send(*sends)
		clear(*sends)
		*sends = (*sends)[:0]
	}
}

func (l *Lane) open(now time.Time) {
	s, err := l.sink.Open(l.complete)
	if err != nil {
		l.log().Debug("no stream to the target", "err", err)
		l.machine.OpenFailed(now)
		return
	}
	l.stream = s
	l.machine.Opened(now)
}

func (l *Lane) act(ctx context.Context, a Action) {
	switch a.Kind {
	case CloseSink:
		l.stream.Close()
	case Seek:
		l.cursor.MoveTo(a.Src, a.Epoch, a.Gen)
	case Ask:
		l.cursor.Ask()
	case Hold:
		l.cursor.Hold()
	case Look:
		id, at, ctx := l.machine.id, l.machine.ack, l.questions(ctx)
		l.wg.Go(func() { l.look(ctx, id, at, a.Scan) })
	case Bounds:
		ctx := l.questions(ctx)
		l.wg.Go(func() { l.bounds(ctx) })
	case Save:
		cp, ctx := l.machine.checkpoint(), l.questions(ctx)
		cp.Clean = false // what is sent next is not covered by it
		l.wg.Go(func() { l.store(ctx, cp) })
	case Recode:
		a, ctx := a, l.questions(ctx) // a copy, so that no other action moves to the heap
		l.wg.Go(func() { l.recode(ctx, a) })
	case Report:
		l.report(a)
	}
}

// SetRules tells what the target takes from now on.
func (l *Lane) SetRules(r Rules) {
	l.event(func(now time.Time) { l.machine.SetRules(r, now) })
}

func (l *Lane) recode(ctx context.Context, a Action) {
	cluster.StageRecode.Enter()
	parts, err := l.recoder.Recode(ctx, a.Batch, a.Plan)
	a.Batch.Release()
	l.event(func(now time.Time) { l.machine.Recoded(a.Ticket, parts, err, now) })
}

func (l *Lane) report(a Action) {
	level := slog.LevelInfo
	if a.Bad {
		level = slog.LevelError
	}
	attrs := []any{"src_offset", a.Src}
	if m := l.machine; m.state == Parked {
		info := m.reason.Info()
		attrs = append(attrs, "reason", string(m.reason), "what", info.What, "detail", m.detail, "cure", info.Cure)
	}
	l.log().Log(context.Background(), level, a.Text, attrs...)
}

func (l *Lane) look(ctx context.Context, id batch.Identity, at Position, scan bool) {
	cluster.StageControl.Enter()
	r, err := l.sink.Look(ctx, id, at, scan)
	l.event(func(now time.Time) {
		if err != nil {
			l.machine.LookFailed(err.Error(), now)
			return
		}
		l.machine.LookedUp(r, now)
	})
}

func (l *Lane) bounds(ctx context.Context) {
	cluster.StageControl.Enter()
	start, end, err := l.cursor.Bounds(ctx)
	l.event(func(now time.Time) {
		if err != nil {
			l.machine.BoundsFailed(now)
			return
		}
		l.machine.SourceBounds(start, end, now)
	})
}

// store repeats until the checkpoint stands: nothing is sent before.
func (l *Lane) store(ctx context.Context, cp Checkpoint) {
	cluster.StageState.Enter()
	for ctx.Err() == nil {
		err := l.save(ctx, cp)
		if err == nil {
			l.event(l.machine.Saved)
			return
		}
		l.log().Warn("storing a lane's new epoch", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (l *Lane) publish(now time.Time) {
	l.mu.Lock()
	caught, was := l.status.CaughtUp, l.status.Checkpoint
	l.machine.status(&l.status)
	news := !l.moved && l.status.Checkpoint != was
	l.moved = l.moved || news
	if end := l.status.LastStable; end >= 0 && l.status.Position.Src >= end {
		caught = now
	}
	l.status.CaughtUp = caught
	l.mu.Unlock()
	if news && l.notify != nil {
		l.notify()
	}
}

// Notify lets f be called, from the lane's goroutine, when the position changes for the first time since Moved. It is set
// before Start.
func (l *Lane) Notify(f func()) { l.notify = f }

// Moved returns the position if it has changed since the last call.
func (l *Lane) Moved() (Checkpoint, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	moved := l.moved
	l.moved = false
	return l.status.Checkpoint, moved
}

// Hungry says that the lane holds so little that it would soon have nothing to do without more: a quarter of its share. At half of
// it it asks.
func (l *Lane) Hungry() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status.Held < l.status.MayHold/4
}

// Status returns the latest snapshot.
func (l *Lane) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}
