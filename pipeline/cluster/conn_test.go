package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
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

// What a peer may do to us, and the error that comes of it.
func TestHostileAnswers(t *testing.T) {
	f := func(name string, key, version int16, answer func(request []byte) []byte, hold bool, want error, text string) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, theirs := wire(t, ConnOptions{RequestTimeout: time.Second})
				background(t, func() {
					request := readFrame(theirs)
					theirs.Write(answer(request))
					if !hold {
						theirs.Close()
					}
				})
				if _, err := c.Write(key, version, net.Buffers{[]byte("ask")}); err != nil {
					t.Fatal(err)
				}
				_, err := c.Read()
				if !errors.Is(err, want) {
					t.Fatalf("got %v, want %v", err, want)
				}
				api := kmsg.NameForKey(key)
				if whole := "read " + api + " from west broker 3 at kafka-3:9092: " + text; err.Error() != whole {
					t.Fatalf("got  %v\nwant %v", err, whole)
				}
				if _, again := c.Read(); again != err {
					t.Fatalf("the second Read gave %v", again)
				}
				if _, e := c.Write(key, version, nil); !errors.Is(e, ErrNotSent) || !errors.Is(e, want) {
					t.Fatalf("a later Write gave %v", e)
				}
				if Fatal(err) != errors.Is(want, ErrTLS) {
					t.Fatalf("Fatal is %v", Fatal(err))
				}
			})
		})
	}
	as := func(b ...[]byte) func([]byte) []byte { return func([]byte) []byte { return bytes.Join(b, nil) } }
	const tooBig = "response size out of bounds: %d bytes, 4 to %d are taken"

	f("another correlation id", keyFetch, 11, as(frame(be32(7), []byte("body"))), true, ErrCorrelation, "answer to another request: correlation id 7, not 0")
	f("negative size", keyFetch, 11, as(be32(-1)), true, ErrSize, fmt.Sprintf(tooBig, -1, 65*mib))
	f("no room for a header", keyFetch, 11, as(be32(3), []byte{0, 0, 0}), true, ErrSize, fmt.Sprintf(tooBig, 3, 65*mib))
	f("huge", keyFetch, 11, as(be32(1<<31-1)), true, ErrSize, fmt.Sprintf(tooBig, 1<<31-1, 65*mib))
	f("one byte above the limit", keyFetch, 11, as(be32(65*mib+1)), true, ErrSize, fmt.Sprintf(tooBig, 65*mib+1, 65*mib))
	f("small API, large answer", keyProduce, 8, as(be32(2*mib)), true, ErrSize, fmt.Sprintf(tooBig, 2*mib, mib))
	f("TLS alert", keyFetch, 11, as([]byte{21, 3, 3, 0, 2, 2, 70}), true, ErrTLS,
		"TLS mismatch: the port speaks TLS: add tls to the configuration or use the broker's plaintext port: response size out of bounds")
	f("end before the answer", keyFetch, 11, as(), false, io.EOF, "EOF")
	f("end in the size", keyFetch, 11, as([]byte{0, 0}), false, io.ErrUnexpectedEOF, "unexpected EOF")
	f("end after the size", keyFetch, 11, as(be32(100)), false, io.ErrUnexpectedEOF, "unexpected EOF")
	f("end in the body", keyFetch, 11, func(r []byte) []byte { return frame(corrOf(r), make([]byte, 1000))[:700] }, false, io.ErrUnexpectedEOF, "unexpected EOF")
	f("silence", keyFetch, 11, as(), true, ErrTimeout, "no answer in time: i/o timeout")
	f("silence after the size", keyFetch, 11, as(be32(100)), true, os.ErrDeadlineExceeded, "no answer in time: i/o timeout")
	f("silence in the body", keyFetch, 11, func(r []byte) []byte { return frame(corrOf(r), make([]byte, 1000))[:700] }, true, ErrTimeout, "no answer in time: i/o timeout")
	f("no tagged fields", keyFetch, 12, func(r []byte) []byte { return frame(corrOf(r)) }, true, ErrProtocol, "malformed response: tagged fields of the header")
	f("endless tagged fields", keyFetch, 12, func(r []byte) []byte { return frame(corrOf(r), []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}) }, true, ErrProtocol,
		"malformed response: tagged fields of the header")
}

// An answer that comes byte by byte is whole in the end, tagged fields in its header included.
func TestOneByteAtATime(t *testing.T) {
	c, theirs := wire(t, ConnOptions{})
	background(t, func() {
		request := readFrame(theirs)
		for _, b := range frame(corrOf(request), []byte{1, 0, 2, 'x', 'y'}, []byte("body")) {
			theirs.Write([]byte{b})
		}
	})
	if _, err := c.Write(keyFetch, 12, nil); err != nil {
		t.Fatal(err)
	}
	r, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Body) != "body" {
		t.Fatalf("got %q", r.Body)
	}
	r.Buf.Release()
}

// A slow body is waited for as long as it moves at 16 KiB/s, also beyond RequestTimeout; a slower one is given up.
func TestSlowBody(t *testing.T) {
	f := func(bytesPerSecond int, want error) {
		synctest.Test(t, func(t *testing.T) {
			c, theirs := wire(t, ConnOptions{RequestTimeout: 2 * time.Second})
			background(t, func() {
				answer := frame(corrOf(readFrame(theirs)), make([]byte, 1*mib))
				for tick := time.NewTicker(time.Second); len(answer) > 0; <-tick.C {
					n := min(bytesPerSecond, len(answer))
					if _, err := theirs.Write(answer[:n]); err != nil {
						return
					}
					answer = answer[n:]
				}
			})
			if _, err := c.Write(keyFetch, 11, nil); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			r, err := c.Read()
			if !errors.Is(err, want) {
				t.Fatalf("at %d bytes/s: %v", bytesPerSecond, err)
			}
			took := time.Since(begin)
			if most := 64*time.Second + 3*time.Second; took < 40*time.Second || took > most {
				t.Fatalf("at %d bytes/s: took %v", bytesPerSecond, took)
			}
			if err == nil {
				r.Buf.Release()
			}
		})
	}
	f(20<<10, nil)
	f(1<<10, ErrTimeout)
}

// A request's time begins when the answer before it is complete: the tenth of a queue is not overdue because nine were before it.
func TestDeadlineOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := wire(t, ConnOptions{RequestTimeout: time.Second})
		background(t, func() {
			var queue [][]byte
			for range 10 {
				queue = append(queue, readFrame(theirs))
			}
			for _, request := range queue {
				<-time.After(900 * time.Millisecond)
				theirs.Write(frame(corrOf(request)))
			}
			if late := readFrame(theirs); late != nil {
				<-time.After(5 * time.Second)
				theirs.Write(frame(corrOf(late)))
			}
		})
		for range 10 {
			if _, err := c.Write(keyFetch, 11, nil); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 10 {
			r, err := c.Read()
			if err != nil {
				t.Fatalf("answer %d: %v", i, err)
			}
			r.Buf.Release()
		}
		c.Throttled(10 * time.Second) // the eleventh takes longer, as the peer has said
		if _, err := c.Write(keyFetch, 11, nil); err != nil {
			t.Fatal(err)
		}
		r, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		r.Buf.Release()
	})
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
