package cluster

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

// allVersions is what a broker offers that knows as much as kmsg.
func allVersions(t testing.TB) *versions {
	t.Helper()
	var offered []kmsg.ApiVersionsResponseApiKey
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil {
			offered = append(offered, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: req.MaxVersion()})
		}
	}
	v, err := negotiate(offered, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wire returns a Conn whose handshake is done and the other end of its pipe. The pool is empty again when the test ends.
func wire(t testing.TB, opts ConnOptions) (*Conn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	return wireOver(t, ours, ours, theirs, opts), theirs
}

func wireOver(t testing.TB, nc, raw, theirs net.Conn, opts ConnOptions) *Conn {
	t.Helper()
	pool := batch.NewPool(0)
	c := newConn(peer{"west", 3, "kafka-3:9092"}, "kferry", nc, raw, opts.withDefaults(pool), new(requests))
	c.versions = allVersions(t)
	// The context of a test ends before its cleanups, so what waits in the background wakes up.
	context.AfterFunc(t.Context(), func() {
		c.Close()
		theirs.Close()
	})
	t.Cleanup(func() {
		if n := pool.InUse(); opts.Pool == nil && n != 0 {
			t.Errorf("%d bytes of the pool were not released", n)
		}
	})
	return c
}

// loopback returns both ends of a TCP connection.
func loopback(t testing.TB) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = newDialer().Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// background runs f, and waits for it at the end of the test.
func background(t testing.TB, f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	t.Cleanup(wg.Wait)
}

// frame is a request or an answer: its size, then what is given.
func frame(parts ...[]byte) []byte {
	b := make([]byte, 4)
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func be32(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// readFrame returns a request after its size, nil at the connection's end.
func readFrame(r io.Reader) []byte {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil
	}
	return b
}

// corrOf returns the correlation id of a request.
func corrOf(request []byte) []byte { return request[4:8] }
