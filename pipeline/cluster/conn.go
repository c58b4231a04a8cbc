package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is a connection to one broker, ready for requests: TCP, TLS, ApiVersions and SASL are done. Its owner's duties stand in the
// package's comment.
type Conn struct {
	peer     peer
	nc       net.Conn // what is read and written: raw, or TLS over it
	raw      net.Conn // what is reset
	versions *versions
	opts     ConnOptions
	requests *requests // the cluster's
	expires  time.Time

	// pending holds the requests that wait for their answers, oldest first. Write blocks where it is full, Read where it is empty.
	pending chan pending
	dead    chan struct{} // closed with the first failure

	mu      sync.Mutex    // guards what follows
	err     error         // the first failure
	muted   time.Time     // the peer reads nothing before
	writing time.Duration // what the last Flush may take, a mute aside

	// The writer's.
	clientID string
	corr     int32
	head     []byte        // of the requests in vecs
	vecs     net.Buffers   // what the next Flush writes; its slices are a copy that WriteTo may eat, and
	rest     net.Buffers   // what it has not eaten yet
	size     int           // bytes in vecs
	key      int16         // of the last request in vecs
	records  *bufio.Writer // under TLS: joins small pieces into full records

	// The reader's.
	in    *bufio.Reader
	low   *lowWater
	frame [4]byte
	last  time.Time // when the answer before was complete
}

// pending is a request in flight.
type pending struct {
	key, version int16
	corr         int32
	flexible     bool
	sent         time.Time
}

// peer names the other end in errors.
type peer struct {
	alias  string
	broker int32 // -1 for a bootstrap address
	addr   string
}

func (p peer) String() string {
	if p.broker < 0 {
		return fmt.Sprintf("%s at %s", p.alias, p.addr)
	}
	return fmt.Sprintf("%s broker %d at %s", p.alias, p.broker, p.addr)
}

// inBytes is the read buffer: enough for the frames of several small answers, and little of a large one is copied through it.
const inBytes = 4 << 10

// recordBytes is what is joined under TLS before it is written: four full TLS records.
const recordBytes = 64 << 10

func newConn(p peer, clientID string, nc, raw net.Conn, opts ConnOptions, sent *requests) *Conn {
	c := &Conn{
		peer:     p,
		nc:       nc,
		raw:      raw,
		versions: handshakeVersions(),
		opts:     opts,
		requests: sent,
		pending:  make(chan pending, opts.MaxOutstanding),
		dead:     make(chan struct{}),
		clientID: clientID,
		in:       bufio.NewReaderSize(nc, inBytes),
	}
	if nc != raw {
		c.records = bufio.NewWriterSize(nc, recordBytes)
	} else {
		c.low = newLowWater(nc)
	}
	return c
}

// Version returns the newest version of an API that both sides know; ok is false where there is none.
func (c *Conn) Version(key int16) (version int16, ok bool) {
	if key < 0 || int(key) >= len(c.versions) || c.versions[key].max < 0 {
		return 0, false
	}
	return c.versions[key].max, true
}

// Expires returns when the SASL session should be given up for a new connection (at 90 % of its lifetime); zero means never.
func (c *Conn) Expires() time.Time { return c.expires }

// Broker returns the broker's id, -1 for one that was reached by a bootstrap address.
func (c *Conn) Broker() int32 { return c.peer.broker }

// String names the peer: alias, broker and address.
func (c *Conn) String() string { return c.peer.String() }

// Write sends one request: Append and Flush.
func (c *Conn) Write(key, version int16, body net.Buffers) (corr int32, err error) {
	if corr, err = c.Append(key, version, body); err != nil {
		return 0, err
	}
	return corr, c.Flush()
}

// Append puts a request behind those that the next Flush sends together. The frame and header are put before body, which is
// borrowed until Flush returns and not changed. It blocks while MaxOutstanding requests are in flight, those that wait for Flush
// among them. version must be one that Version allows. It returns the correlation id that the Response will carry. After an error,
// which wraps ErrNotSent, what was appended before must not be flushed: close the connection.
func (c *Conn) Append(key, version int16, body net.Buffers) (corr int32, err error) {
	flexible, ok := c.versions.flexible(key, version)
	if !ok {
		return 0, fmt.Errorf("write %s v%d to %s: %w: %w", kmsg.NameForKey(key), version, c.peer, ErrNotSent, ErrUnsupported)
	}
	head, size := c.header(key, version, flexible, body)
	if size > maxRequestBytes {
		return 0, fmt.Errorf("write %s of %d bytes to %s: %w: more than the %d a broker takes", kmsg.NameForKey(key), size, c.peer, ErrNotSent, maxRequestBytes)
	}
	p := pending{key: key, version: version, corr: c.corr, flexible: flexible, sent: time.Now()}
	c.corr++
	select {
	case c.pending <- p:
	case <-c.dead:
		return 0, fmt.Errorf("write %s to %s: %w: %w", kmsg.NameForKey(key), c.peer, ErrNotSent, c.cause())
	}
	c.vecs = append(append(c.vecs, head), body...)
	c.size += size
	c.key = key
	c.requests.count(key)
	return p.corr, nil
}

// Flush sends what was appended, in one piece where the kernel takes it. An error that wraps ErrNotSent leaves all of it out of
// doubt.
func (c *Conn) Flush() error {
	if err := c.armWrite(c.opts.RequestTimeout + slowest(c.size)); err != nil {
		return fmt.Errorf("write %s to %s: %w: %w", kmsg.NameForKey(c.key), c.peer, ErrNotSent, err)
	}
	if n, err := c.send(); err != nil {
		if n == 0 {
			err = fmt.Errorf("%w: %w", ErrNotSent, err)
		}
		return c.fail(fmt.Errorf("write %s to %s: %w", kmsg.NameForKey(c.key), c.peer, timely(err)))
	}
	return nil
}

// header appends frame and request header (v1, or v2 where flexible) to c.head; it returns them and the frame's size. Where c.head
// moves as it grows, older headers stay where they were.
func (c *Conn) header(key, version int16, flexible bool, body net.Buffers) (head []byte, size int) {
	if len(c.vecs) == 0 {
		c.head = c.head[:0]
	}
	from := len(c.head)
	h := append(c.head, 0, 0, 0, 0)
	h = binary.BigEndian.AppendUint16(h, uint16(key))
	h = binary.BigEndian.AppendUint16(h, uint16(version))
	h = binary.BigEndian.AppendUint32(h, uint32(c.corr))
	h = binary.BigEndian.AppendUint16(h, uint16(len(c.clientID))) // not compact even in v2
	h = append(h, c.clientID...)
	if flexible {
		h = append(h, 0) // no tagged fields
	}
	c.head = h
	head = h[from:len(h):len(h)]
	size = len(head) - 4
	for _, b := range body {
		size += len(b)
	}
	binary.BigEndian.PutUint32(head, uint32(size))
	return head, size
}

// send writes vecs. It returns 0 bytes with an error only if surely none have left.
func (c *Conn) send() (int64, error) {
	defer func() {
		clear(c.vecs) // holds no released buffer alive
		c.vecs, c.size = c.vecs[:0], 0
	}()
	if c.records != nil {
		for _, b := range c.vecs {
			if _, err := c.records.Write(b); err != nil {
				return 1, err
			}
		}
		return 1, c.records.Flush()
	}
	c.rest = c.vecs
	return c.rest.WriteTo(c.nc)
}

// arm sets a deadline, unless the connection is dead: then it leaves the past one that fail has set.
func (c *Conn) arm(set func(time.Time) error, deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return set(deadline)
}

// armWrite sets the deadline of a write that may take d, from the end of a mute on.
func (c *Conn) armWrite(d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.writing = d
	begin := time.Now()
	if c.muted.After(begin) {
		begin = c.muted
	}
	return c.nc.SetWriteDeadline(begin.Add(d))
}

// fail makes the connection dead, wakes its reader and its writer, and returns the first failure.
func (c *Conn) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.dead)
		c.nc.SetDeadline(time.Unix(1, 0))
	}
	return c.err
}

func (c *Conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Bind makes the connection fail with ctx's cause when ctx ends, so that Read and Write return. stop undoes it and reports whether
// it came in time. The connection still has to be closed.
func (c *Conn) Bind(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.fail(fmt.Errorf("use %s: %w", c.peer, context.Cause(ctx))) })
}

// Close ends the connection politely: what was written is still delivered, and may still be appended by the broker. It may be
// called at any time, from any goroutine, more than once.
func (c *Conn) Close() {
	c.fail(fmt.Errorf("use %s: %w", c.peer, ErrClosed))
	c.nc.Close()
}

// Reset ends the connection with a TCP reset: the broker drops what it has not taken up. Otherwise as Close.
func (c *Conn) Reset() {
	c.fail(fmt.Errorf("use %s: %w", c.peer, ErrClosed))
	if tcp, ok := c.raw.(interface{ SetLinger(sec int) error }); ok {
		tcp.SetLinger(0)
	}
	c.raw.Close()
}

// slowest is the time that size bytes may take at minBytesPerSecond.
func slowest(size int) time.Duration {
	return time.Duration(size) * time.Second / minBytesPerSecond
}
