package lane

import (
	"slices"
	"sync"
	"time"

	"kferry/batch"
)

// mailbox is where others leave letters for the lane.
type mailbox struct {
	mu   sync.Mutex // guards what follows
	come sync.Cond  // there is mail
	letters
	due    bool // the machine's deadline has passed
	abort  bool // end at once
	retire bool // without mail, the goroutine is to leave
	awake  bool // a goroutine works, or is about to
	closed bool // the lane is gone: batches are released at once
}

// letters is what came in. Deliveries are bounded by the source's credit, completions by the depth.
type letters struct {
	deliveries  []Delivery
	batches     []batch.Batch // of all deliveries, in their order
	completions []Completion
	events      []func(time.Time)
}

func (m *letters) empty() bool {
	return len(m.deliveries)+len(m.completions)+len(m.events) == 0
}

// reset empties the letters and keeps their arrays, unless a burst has left them large.
func (m *letters) reset() {
	const most = 256
	clear(m.deliveries)
	clear(m.batches)
	clear(m.completions)
	clear(m.events)
	m.deliveries, m.batches = m.deliveries[:0], m.batches[:0]
	m.completions, m.events = m.completions[:0], m.events[:0]
	if cap(m.batches) > most {
		m.batches = nil
	}
}

// posted tells that something has changed: the goroutine wakes, or one is started. The caller has locked in.mu and does not hold it
// any more when posted returns.
func (l *Lane) posted() {
	in := &l.in
	start := !in.awake && !in.closed && l.started != nil
	if start {
		in.awake = true
	}
	in.mu.Unlock()
	if start {
		l.started.Go(l.work)
		return
	}
	in.come.Signal()
}

// Deliver takes one response's part. The batches' references move to the lane; the slices are only borrowed.
func (l *Lane) Deliver(d Delivery) {
	b := &l.in
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		for _, x := range d.Batches {
			x.Release()
		}
		return
	}
	// The slice headers move to our own array: the count is kept by its length, the place is found again in takeMail.
	b.batches = append(b.batches, d.Batches...)
	d.Batches = d.Batches[:len(d.Batches):len(d.Batches)]
	if len(d.Aborted) > 0 {
		d.Aborted = slices.Clone(d.Aborted)
	}
	b.deliveries = append(b.deliveries, d)
	l.posted()
}

// complete takes the sink's answer.
func (l *Lane) complete(c Completion) {
	l.in.mu.Lock()
	l.in.completions = append(l.in.completions, c)
	l.posted()
}

func (l *Lane) event(f func(time.Time)) {
	l.in.mu.Lock()
	l.in.events = append(l.in.events, f)
	l.posted()
}

// expired is called by the timer.
func (l *Lane) expired() {
	l.in.mu.Lock()
	l.in.due = true
	l.posted()
}

// Abort ends the lane at once: it waits only for what the sink has borrowed.
func (l *Lane) Abort() {
	l.in.mu.Lock()
	l.in.abort = true
	l.posted()
}

// Retire lets the goroutine of a lane that has nothing to do leave; the next letter starts another one. Stacks are most of what ten
// thousand quiet lanes would cost.
func (l *Lane) Retire() {
	l.in.mu.Lock()
	if !l.in.awake || !l.in.empty() {
		l.in.mu.Unlock()
		return
	}
	l.in.retire = true
	l.in.mu.Unlock()
	l.in.come.Signal()
}

// wait blocks until there is mail or the machine wants the time. It returns false when the goroutine is to leave.
func (l *Lane) wait() bool {
	if d := l.machine.Deadline(); !d.IsZero() {
		if l.timer == nil { // without a deadline there is no timer: ten thousand quiet lanes have none
			l.timer = time.AfterFunc(time.Until(d), l.expired)
		} else {
			l.timer.Reset(time.Until(d))
		}
	}
	in := &l.in
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.empty() && !in.due && !in.abort {
		if in.retire {
			in.retire, in.awake = false, false
			in.letters = letters{}
			l.machine.rest()
			return false
		}
		in.come.Wait()
	}
	in.due, in.retire = false, false
	return true
}
