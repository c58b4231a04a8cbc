package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The frame and header of every API at every version are, byte for byte, what kmsg's formatter writes.
func TestRequestFraming(t *testing.T) {
	c, theirs := wire(t, ConnOptions{})
	got := make(chan []byte, 1)
	background(t, func() {
		for b := readFrame(theirs); b != nil; b = readFrame(theirs) {
			got <- b
		}
	})
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("kferry"))
	n := 0
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil || key == 7 { // ControlledShutdown v0 has a header of its own, and is between brokers
			continue
		}
		r := c.versions[key]
		for version := r.min; version <= r.max; version++ {
			req.SetVersion(version)
			want := formatter.AppendRequest(nil, req, c.corr)[4:]
			corr, err := c.Write(key, version, net.Buffers{req.AppendTo(nil)})
			if err != nil {
				t.Fatal(err)
			}
			if b := <-got; !bytes.Equal(b, want) || int32(binary.BigEndian.Uint32(corrOf(b))) != corr {
				t.Fatalf("%s v%d: wrote %x, kmsg writes %x", kmsg.NameForKey(key), version, b, want)
			}
			<-c.pending
			n++
		}
	}
	if n < 200 {
		t.Fatalf("only %d requests compared", n)
	}
}

// Hundreds of requests are in flight, of many pieces each; all answers come, in order, with their bytes. The caller's slices are as
// they were. Over TCP by writev, and over TLS.
func TestPipeline(t *testing.T) {
	for _, over := range []string{"tcp", "tls"} {
		t.Run(over, func(t *testing.T) {
			raw, theirs := loopback(t)
			c := wireOver(t, raw, raw, theirs, ConnOptions{MaxResponseBytes: 8 * mib})
			if over == "tls" {
				ours, server := tlsPair(t, raw, theirs)
				c, theirs = wireOver(t, ours, raw, server, ConnOptions{MaxResponseBytes: 8 * mib}), server
			}
			background(t, func() { // echoes each body as the answer, whole requests late
				for b := readFrame(theirs); b != nil; b = readFrame(theirs) {
					if _, err := theirs.Write(frame(corrOf(b), b[8+2+len("kferry"):])); err != nil {
						return
					}
				}
			})
			const requests = 300
			rnd := rand.New(rand.NewPCG(1, 2))
			bodies := make([]net.Buffers, requests)
			for i := range bodies {
				for range 1 + rnd.IntN(40) {
					piece := make([]byte, rnd.IntN(20<<10)>>rnd.IntN(12))
					for j := range piece {
						piece[j] = byte(rnd.Uint32())
					}
					bodies[i] = append(bodies[i], piece)
				}
			}
			background(t, func() {
				for i, body := range bodies {
					before := append(net.Buffers(nil), body...)
					corr, err := c.Write(keyFetch, 11, body)
					if err != nil || corr != int32(i) {
						t.Errorf("write %d: corr %d, %v", i, corr, err)
						return
					}
					if !slices.EqualFunc(before, body, bytes.Equal) {
						t.Errorf("write %d changed its caller's slices", i)
					}
				}
			})
			for i, body := range bodies {
				r, err := c.Read()
				if err != nil {
					t.Fatal(err)
				}
				if r.Corr != int32(i) || r.Key != keyFetch || r.Version != 11 || !bytes.Equal(r.Body, bytes.Join(body, nil)) {
					t.Fatalf("answer %d: corr %d, %d bytes of %d", i, r.Corr, len(r.Body), len(bytes.Join(body, nil)))
				}
				if r.Sent.After(r.FirstByte) || r.FirstByte.After(r.Done) {
					t.Fatalf("answer %d: sent %v, first byte %v, done %v", i, r.Sent, r.FirstByte, r.Done)
				}
				r.Buf.Release()
			}
		})
	}
}

// With nothing in flight Read has no deadline, and a request after an hour is answered as ever.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := wire(t, ConnOptions{})
		background(t, func() { theirs.Write(frame(corrOf(readFrame(theirs)))) })
		read := make(chan error)
		background(t, func() {
			r, err := c.Read()
			if err == nil {
				r.Buf.Release()
			}
			read <- err
		})
		select {
		case err := <-read:
			t.Fatalf("Read returned %v with nothing in flight", err)
		case <-time.After(time.Hour):
		}
		if _, err := c.Write(keyFetch, 11, nil); err != nil {
			t.Fatal(err)
		}
		if err := <-read; err != nil {
			t.Fatal(err)
		}
	})
}

// Write blocks above MaxOutstanding, until an answer is read.
func TestMaxOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := wire(t, ConnOptions{MaxOutstanding: 2})
		background(t, func() {
			for b := readFrame(theirs); b != nil; b = readFrame(theirs) {
				if binary.BigEndian.Uint32(corrOf(b)) == 1 {
					theirs.Write(frame(be32(0)))
				}
			}
		})
		written := make(chan error, 3)
		background(t, func() {
			for range 3 {
				_, err := c.Write(keyFetch, 11, nil)
				written <- err
			}
		})
		synctest.Wait()
		if n := len(written); n != 2 {
			t.Fatalf("%d writes done, want 2", n)
		}
		r, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		r.Buf.Release()
		synctest.Wait()
		if n := len(written); n != 3 {
			t.Fatalf("%d writes done after an answer, want 3", n)
		}
		for range 3 {
			if err := <-written; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Requests that are flushed together arrive as if written one by one.
func TestFlushTogether(t *testing.T) {
	for _, count := range []int{1, 2, 50} { // with 50, the headers' memory has moved
		c, theirs := wire(t, ConnOptions{})
		arrived := make(chan []byte, count)
		background(t, func() {
			for range count {
				arrived <- readFrame(theirs)
			}
		})
		for i := range count {
			if corr, err := c.Append(keyProduce, 8, net.Buffers{{byte(i)}, {1, 2}}); err != nil || corr != int32(i) {
				t.Fatalf("request %d: correlation id %d, %v", i, corr, err)
			}
		}
		if len(arrived) > 0 {
			t.Fatal("a request left before Flush")
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		for i := range count {
			want := slices.Concat([]byte{0, keyProduce, 0, 8}, be32(int32(i)), []byte{0, 6}, []byte("kferry"), []byte{byte(i), 1, 2})
			if got := <-arrived; !bytes.Equal(got, want) {
				t.Fatalf("request %d of %d arrived as %x, want %x", i, count, got, want)
			}
		}
	}
}

// A peer that does not take our bytes ends the connection, with the request in doubt.
func TestStuckWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := wire(t, ConnOptions{RequestTimeout: time.Second})
		background(t, func() { io.ReadFull(theirs, make([]byte, 10)) })
		_, err := c.Write(keyProduce, 8, net.Buffers{make([]byte, 100)})
		if !errors.Is(err, ErrTimeout) || errors.Is(err, ErrNotSent) {
			t.Fatalf("got %v", err)
		}
		if want := "write Produce to west broker 3 at kafka-3:9092: no answer in time: i/o timeout"; err.Error() != want {
			t.Fatalf("got %v, want %v", err, want)
		}
	})
}

// What is refused before a byte has left is not in doubt, and does no harm to the connection.
func TestNotSent(t *testing.T) {
	c, theirs := wire(t, ConnOptions{})
	_, err := c.Write(keyProduce, 8, net.Buffers{make([]byte, maxRequestBytes)})
	if want := "write Produce of 104857616 bytes to west broker 3 at kafka-3:9092: request not sent: more than the 104857600 a broker takes"; !errors.Is(err, ErrNotSent) || err.Error() != want {
		t.Fatalf("got %v, want %v", err, want)
	}
	for _, v := range []int16{minProduce - 1, 14} {
		if _, err := c.Write(keyProduce, v, nil); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrUnsupported) {
			t.Fatalf("version %d: %v", v, err)
		}
	}
	for _, key := range []int16{-1, kmsg.MaxKey + 1, 1 << 14} {
		if _, err := c.Write(key, 0, nil); !errors.Is(err, ErrUnsupported) {
			t.Fatalf("key %d: %v", key, err)
		}
		if _, ok := c.Version(key); ok {
			t.Fatalf("key %d has a version", key)
		}
	}
	background(t, func() { theirs.Write(frame(corrOf(readFrame(theirs)))) })
	if _, err := c.Write(keyProduce, 8, nil); err != nil {
		t.Fatal(err)
	}
	r, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	r.Buf.Release()
}

// Close, Reset and the end of a bound context wake a waiting reader and a stuck writer, and say who did it.
func TestWakeUp(t *testing.T) {
	cause := errors.New("the lane stops")
	f := func(name string, end func(*Conn, context.CancelCauseFunc), want error) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c, _ := wire(t, ConnOptions{})
				defer c.Bind(ctx)()
				errs := make(chan error, 2)
				background(t, func() { _, err := c.Read(); errs <- err })
				background(t, func() { _, err := c.Write(keyFetch, 11, nil); errs <- err })
				synctest.Wait()
				end(c, cancel)
				for range 2 {
					if err := <-errs; !errors.Is(err, want) {
						t.Fatalf("got %v", err)
					}
				}
				if _, err := c.Read(); !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "use west broker 3 at kafka-3:9092: ") {
					t.Fatalf("got %v", err)
				}
			})
		})
	}
	f("close", func(c *Conn, _ context.CancelCauseFunc) { c.Close(); c.Close() }, ErrClosed)
	f("reset", func(c *Conn, _ context.CancelCauseFunc) { c.Reset(); c.Close() }, net.ErrClosed)
	f("context", func(_ *Conn, cancel context.CancelCauseFunc) { cancel(cause) }, cause)
}

// After Reset the peer sees a reset, after Close an orderly end.
func TestResetOnTheWire(t *testing.T) {
	f := func(end func(*Conn), want error) {
		ours, theirs := loopback(t)
		c := wireOver(t, ours, ours, theirs, ConnOptions{})
		end(c)
		theirs.SetReadDeadline(time.Now().Add(patience))
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, want) {
			t.Fatalf("the peer sees %v, want %v", err, want)
		}
	}
	f((*Conn).Reset, syscall.ECONNRESET)
	f((*Conn).Close, io.EOF)
}

// A write allocates nothing, whatever the number of pieces.
func TestWriteAllocates(t *testing.T) {
	ours, theirs := loopback(t)
	c := wireOver(t, ours, ours, theirs, ConnOptions{})
	background(t, func() { io.Copy(io.Discard, theirs) })
	body := net.Buffers{make([]byte, 61), make([]byte, 1000), make([]byte, 61), make([]byte, 1000)}
	n := testing.AllocsPerRun(500, func() {
		if _, err := c.Write(keyFetch, 11, body); err != nil {
			t.Fatal(err)
		}
		<-c.pending
	})
	if n != 0 {
		t.Fatalf("%v allocations for a request", n)
	}
}
