package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

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

// What looks like a TLS record is one only as the first thing that comes; later it is damage, and no reason to stop the process.
func TestDamageIsNoTLS(t *testing.T) {
	c, theirs := wire(t, ConnOptions{})
	background(t, func() {
		theirs.Write(frame(corrOf(readFrame(theirs))))
		readFrame(theirs)
		theirs.Write([]byte{21, 3, 3, 0})
	})
	for i, want := range []error{nil, ErrSize} {
		if _, err := c.Write(keyFetch, 11, nil); err != nil {
			t.Fatal(err)
		}
		r, err := c.Read()
		if !errors.Is(err, want) || Fatal(err) {
			t.Fatalf("answer %d: %v", i, err)
		}
		if err == nil {
			r.Buf.Release()
		}
	}
}
