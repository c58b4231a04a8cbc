package kafkatest

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkBytes  = 32 << 10
	chunksAhead = 512 // in a delayed flow: 16 MiB per connection, more is backpressure
)

// Flow is one direction of a proxy, over all of its connections.
type Flow struct {
	proxy *Proxy

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced when a field below changes
	stalled   bool
	swallow   bool
	delay     time.Duration
	rate      int64     // bytes a second, over all connections; 0: no limit
	free      time.Time // when the rate lets the next byte pass
	cutAfter  int64     // bytes until the cut, if armed
	cutHow    Cut
	cutArmed  bool
	forwarded int64 // bytes
}

func newFlow(p *Proxy) *Flow { return &Flow{proxy: p, changed: make(chan struct{})} }

// Stall stops the flow: bytes wait in the sockets until Resume, and what they hold back is not lost.
func (f *Flow) Stall() { f.set(func() { f.stalled = true }) }

// Blackhole lets the sender go on and throws its bytes away. The connections of this time are good for nothing
// afterwards: cut them.
func (f *Flow) Blackhole() { f.set(func() { f.swallow = true }) }

// Delay makes every byte arrive so much later, without bounding the rate (16 MiB of a connection may be on the way).
func (f *Flow) Delay(d time.Duration) { f.set(func() { f.delay = d }) }

// Limit bounds the flow of all connections together, in bytes a second.
func (f *Flow) Limit(bytesPerSecond int64) { f.set(func() { f.rate = bytesPerSecond }) }

// CutAfter cuts, once, the connection that carries the n-th byte from now on, right behind that byte: in the middle of
// a request or an answer, if n says so.
func (f *Flow) CutAfter(n int64, how Cut) {
	f.set(func() { f.cutAfter, f.cutHow, f.cutArmed = n, how, true })
}

// Resume ends stall, blackhole, delay and limit.
func (f *Flow) Resume() {
	f.set(func() { f.stalled, f.swallow, f.delay, f.rate = false, false, 0, 0 })
}

// Forwarded is how many bytes have passed.
func (f *Flow) Forwarded() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.forwarded
}

func (f *Flow) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

type chunk struct {
	bytes []byte
	due   time.Time
}

// copy forwards until one side ends, then passes the end on: a half-close as a half-close, anything else as a reset.
func (f *Flow) copy(c *pair, to, from *net.TCPConn) {
	ahead := make(chan chunk, chunksAhead)
	var wg sync.WaitGroup
	wg.Go(func() { f.deliver(c, to, ahead) })
	var err error
	for err == nil && f.open(c) {
		b := make([]byte, chunkBytes)
		var n int
		if n, err = from.Read(b); n > 0 {
			f.mu.Lock()
			due := time.Now().Add(f.delay)
			f.mu.Unlock()
			select {
			case ahead <- chunk{b[:n], due}:
			case <-c.gone:
			}
		}
	}
	close(ahead)
	wg.Wait()
	switch {
	case c.isGone(): // cut; a half-close now could overtake the reset
	case err == io.EOF:
		_ = to.CloseWrite()
	default:
		f.proxy.drop(c, RST)
	}
}

// open waits while the flow is stalled; false: the connection is gone.
func (f *Flow) open(c *pair) bool {
	for {
		f.mu.Lock()
		stalled, changed := f.stalled, f.changed
		f.mu.Unlock()
		if !stalled {
			break
		}
		select {
		case <-changed:
		case <-c.gone:
			return false
		}
	}
	return !c.isGone()
}

func (f *Flow) deliver(c *pair, to *net.TCPConn, ahead <-chan chunk) {
	for k := range ahead {
		// Asked again here: a stall holds back what was read before it.
		if !until(c, k.due) || !f.open(c) {
			continue // gone; drain what copy still hands over
		}
		b, cut := f.admit(k.bytes)
		if !until(c, f.slot(len(b))) {
			continue
		}
		if len(b) > 0 {
			if _, err := to.Write(b); err != nil {
				f.proxy.drop(c, RST)
				continue
			}
		}
		if cut != nil {
			f.proxy.drop(c, *cut)
		}
	}
}

// admit says which of the bytes may pass and whether the connection is cut behind them.
func (f *Flow) admit(b []byte) (pass []byte, cut *Cut) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cutArmed {
		if int64(len(b)) >= f.cutAfter {
			b, cut = b[:f.cutAfter], new(f.cutHow)
			f.cutArmed = false
		} else {
			f.cutAfter -= int64(len(b))
		}
	}
	if f.swallow {
		return nil, cut
	}
	f.forwarded += int64(len(b))
	return b, cut
}

// slot takes n bytes of the rate and returns when they may leave.
func (f *Flow) slot(n int) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if f.rate <= 0 {
		return now
	}
	if f.free.Before(now) {
		f.free = now
	}
	at := f.free
	f.free = f.free.Add(time.Duration(float64(n) / float64(f.rate) * float64(time.Second)))
	return at
}

// until waits for a time; false: the connection is gone.
func until(c *pair, at time.Time) bool {
	d := time.Until(at)
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.gone:
		return false
	}
}
