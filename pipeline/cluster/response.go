package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

// Response is one answer, still encoded.
type Response struct {
	Key, Version int16
	Corr         int32

	Buf  *batch.Buf // the receiver's: to be released
	Body []byte     // the message after its header: part of Buf, valid until Buf is released

	Sent      time.Time // when the request was written
	FirstByte time.Time // when the answer began to come
	Done      time.Time // when it was complete
}

// Read returns the next answer, in the order of the requests. With nothing in flight it blocks until something is written, or until
// the connection is closed or the context given to Bind ends. Whatever the peer sends, Read takes no more memory than the limit in
// ConnOptions. Errors, all final: ErrTimeout, ErrSize, ErrCorrelation, ErrProtocol, those of the network, ErrClosed, the context's.
func (c *Conn) Read() (Response, error) {
	var p pending
	select {
	case p = <-c.pending:
	case <-c.dead:
		return Response{}, c.cause()
	}
	r, err := c.answer(p)
	if err != nil {
		return Response{}, c.fail(fmt.Errorf("read %s from %s: %w", kmsg.NameForKey(p.key), c.peer, timely(err)))
	}
	return r, nil
}

func (c *Conn) answer(p pending) (Response, error) {
	// The peer works through its requests one by one, so this one's time begins when the one before it is done.
	begin := p.sent
	if c.last.After(begin) {
		begin = c.last
	}
	if err := c.arm(c.nc.SetReadDeadline, begin.Add(c.opts.RequestTimeout)); err != nil {
		return Response{}, err
	}
	if _, err := io.ReadFull(c.in, c.frame[:]); err != nil {
		return Response{}, err
	}
	first := time.Now()
	size := int(int32(binary.BigEndian.Uint32(c.frame[:])))
	if limit := c.opts.maxResponse(p.key); size < 4 || size > limit {
		return Response{}, c.sizeError(size, limit)
	}
	if _, err := io.ReadFull(c.in, c.frame[:]); err != nil {
		return Response{}, whole(err)
	}
	if corr := int32(binary.BigEndian.Uint32(c.frame[:])); corr != p.corr {
		return Response{}, fmt.Errorf("%w: correlation id %d, not %d", ErrCorrelation, corr, p.corr)
	}
	buf := c.opts.Pool.Get(size - 4)
	body, err := buf.Bytes(), c.fill(buf.Bytes(), begin, first)
	if err == nil && p.flexible && p.key != keyAPIVersions { // its header stays v0, KIP-511
		body, err = skipTags(body)
	}
	if err != nil {
		buf.Release()
		return Response{}, err
	}
	c.last = time.Now()
	return Response{
		Key: p.key, Version: p.version, Corr: p.corr, Buf: buf, Body: body,
		Sent: p.sent, FirstByte: first, Done: c.last,
	}, nil
}

// fill reads b whole. The deadline that was set at armed moves on while bytes come, but not beyond the slowest rate that is waited
// for: a peer that sends a byte now and then does not hold us for ever.
func (c *Conn) fill(b []byte, armed, first time.Time) error {
	end := first.Add(c.opts.RequestTimeout + slowest(len(b)))
	for now := first; ; now = time.Now() {
		if now.Sub(armed) > c.opts.RequestTimeout/4 {
			deadline := now.Add(c.opts.RequestTimeout)
			if deadline.After(end) {
				deadline = end
			}
			if err := c.arm(c.nc.SetReadDeadline, deadline); err != nil {
				return err
			}
			armed = now
		}
		c.low.want(len(b) - c.in.Buffered())
		if len(b) == 0 {
			return nil
		}
		n, err := c.in.Read(b)
		if b = b[n:]; err != nil && len(b) > 0 {
			return whole(err)
		}
	}
}

// Throttled tells that the peer has said it will read nothing for d (throttle_time_ms: it answers first and stops reading then). The
// next answer gets that much more time, and so do a write that is under way and the bytes that wait before a closed window. For the
// reader's goroutine.
func (c *Conn) Throttled(d time.Duration) {
	const most = 10 * time.Minute // no broker's quota window is that long; a hostile one may say 24 days
	if d = min(d, most); d <= 0 {
		return
	}
	c.last = c.last.Add(d)
	if d > userTimeout/2 {
		setUserTimeout(c.raw, d+userTimeout)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.muted = time.Now().Add(d); c.err == nil {
		c.nc.SetWriteDeadline(c.muted.Add(c.writing)) //nolint:errcheck // a connection that is closed meanwhile says so to its writer
	}
}

// skipTags returns what follows the tagged fields of a flexible header.
func skipTags(b []byte) ([]byte, error) {
	if len(b) > 0 && b[0] == 0 {
		return b[1:], nil // as always, so far
	}
	r := kbin.Reader{Src: b}
	kmsg.SkipTags(&r)
	if !r.Ok() {
		return nil, fmt.Errorf("%w: tagged fields of the header", ErrProtocol)
	}
	return r.Src, nil
}

func (c *Conn) sizeError(size, limit int) error {
	// A TLS alert (21) or handshake (22) record of version 3.x, as the very first thing in plaintext.
	if (c.frame[0] == 21 || c.frame[0] == 22) && c.frame[1] == 3 && c.last.IsZero() && c.nc == c.raw {
		return fmt.Errorf("%w: the port speaks TLS: add tls to the configuration or use the broker's plaintext port: %w", ErrTLS, ErrSize)
	}
	return fmt.Errorf("%w: %d bytes, 4 to %d are taken", ErrSize, size, limit)
}

// whole makes an end within an answer what it is.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// timely gives a deadline that has passed its name.
func timely(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, ErrTimeout) {
		return ErrTimeout
	}
	return err
}
