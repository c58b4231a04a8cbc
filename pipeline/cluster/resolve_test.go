package cluster

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// names is a name server that knows one name, whatever is asked, and counts the questions for IPv4 addresses.
type names struct {
	mu    sync.Mutex
	addrs []net.IP
	asked int
}

func (n *names) set(addrs ...net.IP) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs, n.asked = addrs, 0
}

func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// dialer is the one of all our connections, asking this name server.
func (n *names) dialer(t *testing.T) DialFunc {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(t.Context(), func() { pc.Close() })
	background(t, func() {
		b := make([]byte, 512)
		for {
			size, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			pc.WriteTo(n.answer(b[:size]), from)
		}
	})
	d := newDialer()
	d.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
	return d.DialContext
}

// answer is RFC 1035, 4.1: the header, the question as it came, and an A record for each address.
func (n *names) answer(question []byte) []byte {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	end += 5
	a := append([]byte(nil), question[:end]...)
	binary.BigEndian.PutUint16(a[2:], 0x8180)
	clear(a[6:12])
	if binary.BigEndian.Uint16(question[end-4:]) != 1 { // not an A
		return a
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	binary.BigEndian.PutUint16(a[6:], uint16(len(n.addrs)))
	for _, ip := range n.addrs {
		a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
		a = append(a, ip.To4()...)
	}
	return a
}

// All addresses of a name are tried, and it is looked up anew for every connection: brokers move behind the same names.
func TestNamesAreResolvedAnew(t *testing.T) {
	f := fake(t)
	_, port, _ := net.SplitHostPort(f.ListenAddrs()[0])
	addr := net.JoinHostPort("kafka.example.", port)
	var n names
	here, nobody := net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 2)
	n.set(nobody, here)
	c := open(t, Config{Bootstrap: []string{addr}, Dial: n.dialer(t)})
	for want := range 3 {
		if got := n.count(); got != want {
			t.Fatalf("%d look-ups for %d connections", got, want)
		}
		if err := c.Reach(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	n.set(nobody)
	if err := c.Reach(within(t)); err == nil || Fatal(err) {
		t.Fatalf("got %v", err)
	}
	n.set(here) // the broker has come back elsewhere
	if err := c.Reach(within(t)); err != nil {
		t.Fatal(err)
	}
}

func TestIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("NOT TESTED: this machine has no IPv6 loopback: %v", err)
	}
	l.Close()
	f := fake(t, kfake.ListenFn(func(network, _ string) (net.Listener, error) { return net.Listen(network, "[::1]:0") }))
	c := open(t, Config{Bootstrap: f.ListenAddrs()})
	bothWays(t, c)
	for broker := range c.Topology().Brokers {
		if addr, _ := c.Topology().Addr(broker); addr[:6] != "[::1]:" {
			t.Fatalf("the broker is at %s", addr)
		}
	}
}
