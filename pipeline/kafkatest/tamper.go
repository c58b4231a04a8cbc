package kafkatest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// Tamper is a way to brokers that changes what goes over it: a hostile peer, or a wire that flips bits. Its Dial takes the place of
// a client's dialer; it knows frames, so each function is told one whole request or answer, and the answer's with the API that
// it belongs to. They are called from the client's goroutines, many at once, and must not be changed once Dial was called.
type Tamper struct {
	// Request and Answer, where set, return what goes on in the place of frame, which begins with its four bytes of size and may be
	// changed in place. Nil ends the connection there. So does a frame that is not as long as it says, after its last byte.
	Request func(x Exchange, frame []byte) []byte
	Answer  func(x Exchange, frame []byte) []byte
}

// Exchange is a request and its answer.
type Exchange struct {
	Key, Version int16
	Corr         int32
	Addr         string
}

// Dial connects to a broker. The connection may be written by one goroutine and read by another.
func (t *Tamper) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tampered{Conn: nc, of: t, addr: addr}, nil
}

// tampered is one connection. Embedded is the interface: with TCPConn's own methods net.Buffers would go around Write.
type tampered struct {
	net.Conn
	of   *Tamper
	addr string

	written []byte // of a request that is not whole yet; the writer's

	mu      sync.Mutex
	pending []Exchange // whose answers are to come; guarded by mu

	got   []byte // of an answer that is not whole yet; the reader's
	ready []byte // to be read
	ended bool   // nothing follows ready
}

// SetLinger lets a client reset the connection.
func (c *tampered) SetLinger(sec int) error { return c.Conn.(*net.TCPConn).SetLinger(sec) }

func (c *tampered) Write(b []byte) (int, error) {
	c.written = append(c.written, b...)
	for {
		frame, rest, ok := cutFrame(c.written)
		if !ok || len(frame) < 12 {
			return len(b), nil
		}
		x := Exchange{Key: int16(binary.BigEndian.Uint16(frame[4:])), Version: int16(binary.BigEndian.Uint16(frame[6:])), Corr: int32(binary.BigEndian.Uint32(frame[8:])), Addr: c.addr}
		out := frame
		if f := c.of.Request; f != nil {
			out = f(x, frame)
		}
		c.mu.Lock()
		c.pending = append(c.pending, x)
		c.mu.Unlock()
		if _, err := c.Conn.Write(out); err != nil {
			return 0, err
		}
		if !whole(out) {
			c.Conn.Close()
			return 0, io.ErrClosedPipe
		}
		c.written = append(c.written[:0], rest...)
	}
}

func (c *tampered) Read(b []byte) (int, error) {
	for len(c.ready) == 0 {
		if c.ended {
			return 0, io.EOF
		}
		frame, rest, ok := cutFrame(c.got)
		if !ok {
			n, err := c.Conn.Read(b)
			if c.got = append(c.got, b[:n]...); err != nil {
				return 0, err // what has come stays: it may have been a deadline
			}
			continue
		}
		c.got = rest
		c.ready = frame
		if x, ok := c.asked(); ok && c.of.Answer != nil {
			c.ready = c.of.Answer(x, frame)
			c.ended = !whole(c.ready)
		}
	}
	n := copy(b, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// asked takes the oldest request: that is whose answer comes next.
func (c *tampered) asked() (x Exchange, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return x, false
	}
	x, c.pending = c.pending[0], c.pending[1:]
	return x, true
}

// cutFrame takes one frame off b.
func cutFrame(b []byte) (frame, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, b, false
	}
	end := 4 + int64(binary.BigEndian.Uint32(b))
	if int64(len(b)) < end {
		return nil, b, false
	}
	return b[:end:end], b[end:], true
}

// whole says that a frame is as long as it says.
func whole(frame []byte) bool {
	return len(frame) >= 4 && len(frame)-4 == int(int32(binary.BigEndian.Uint32(frame)))
}
