package kafkatest_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"kferry/pipeline/kafkatest"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func newProxy(t *testing.T) *kafkatest.Proxy {
	t.Helper()
	p, err := kafkatest.ListenProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// dial connects and shows that bytes come back.
func dial(t *testing.T, p *kafkatest.Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	say(t, c, "hello")
	hear(t, c, "hello")
	return c
}

func say(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(c, what); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

// hearNothing shows that no byte comes for a while.
func hearNothing(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v, want silence", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
}

func TestProxyCutsAll(t *testing.T) {
	p := newProxy(t)
	for how, want := range map[kafkatest.Cut]error{kafkatest.RST: syscall.ECONNRESET, kafkatest.FIN: io.EOF} {
		a, b := dial(t, p), dial(t, p)
		if n := p.CutAll(how); n != 2 {
			t.Errorf("cut %d connections, want 2", n)
		}
		for _, c := range []net.Conn{a, b} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, want) {
				t.Errorf("after cut %d: %v, want %v", how, err, want)
			}
		}
		dial(t, p)
		p.CutAll(kafkatest.RST)
	}
}

func TestProxyRefuses(t *testing.T) {
	p := newProxy(t)
	old := dial(t, p)
	p.Refuse(true)
	say(t, old, "still here")
	hear(t, old, "still here")
	c, err := net.Dial("tcp", p.Addrs()[0])
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a refused connection: %v, want %v", err, syscall.ECONNRESET)
	}
	p.Refuse(false)
	dial(t, p)
}

func TestProxyStallLosesNothing(t *testing.T) {
	p := newProxy(t)
	c := dial(t, p)
	p.Answers.Stall()
	say(t, c, "one")
	hearNothing(t, c)
	if got := p.Requests.Forwarded(); got != 8 {
		t.Errorf("%d bytes went to the target, want 8: a stalled answer has its request behind it", got)
	}
	p.Resume()
	hear(t, c, "one")
	p.Stall()
	say(t, c, "two")
	hearNothing(t, c)
	if n := p.CutAll(kafkatest.RST); n != 1 {
		t.Errorf("cut %d stalled connections, want 1", n)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the cut: %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestProxyBlackhole(t *testing.T) {
	p := newProxy(t)
	c := dial(t, p)
	p.Requests.Blackhole()
	say(t, c, "lost")
	hearNothing(t, c)
	p.Resume()
	say(t, c, "found")
	hear(t, c, "found")
}

func TestProxyDelays(t *testing.T) {
	p := newProxy(t)
	c := dial(t, p)
	const delay = 100 * time.Millisecond
	p.Answers.Delay(delay)
	start := time.Now()
	for range 10 {
		say(t, c, "x")
	}
	hear(t, c, "xxxxxxxxxx")
	if took := time.Since(start); took < delay || took > 8*delay {
		t.Errorf("ten bytes took %v, want one delay of %v", took, delay)
	}
}

func TestProxyLimits(t *testing.T) {
	p := newProxy(t)
	c := dial(t, p)
	p.Requests.Limit(1 << 20)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 16<<10) // 256 KiB: a quarter of a second
	start := time.Now()
	go func() { _, _ = c.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("the bytes did not come back whole: %v", err)
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("256 KiB at 1 MiB/s took %v", took)
	}
}

func TestProxyCutsAfterByte(t *testing.T) {
	p := newProxy(t)
	c := dial(t, p)
	p.Answers.CutAfter(5, kafkatest.FIN)
	say(t, c, "abcdefgh")
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "abcde" {
		t.Errorf("read %q, %v, want the 5 bytes before the cut", got, err)
	}
	dial(t, p) // once
}
