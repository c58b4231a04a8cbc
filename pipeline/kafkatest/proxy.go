package kafkatest

import (
	"fmt"
	"net"
	"sync"
)

// Cut is how a proxy ends connections: with a FIN, as a peer that closes, or with a RST, as one that is gone.
type Cut int

const (
	FIN Cut = iota
	RST
)

// Proxy is a TCP proxy that misbehaves on demand. It listens on one loopback port per target and forwards bytes, which
// it never looks into. What Requests and Answers are told holds for the connections of now and of later.
type Proxy struct {
	Requests *Flow // clients to targets
	Answers  *Flow // targets to clients

	listeners []net.Listener
	targets   []string
	wg        sync.WaitGroup

	mu      sync.Mutex
	refuse  bool               // guarded by mu
	closed  bool               // guarded by mu
	conns   map[*pair]struct{} // guarded by mu
	counted int                // guarded by mu
}

// pair is one client's connection and ours to the target.
type pair struct {
	client, target *net.TCPConn
	gone           chan struct{} // closed by end
	once           sync.Once
}

// ListenProxy starts a proxy before these targets, which need not listen yet. Close ends it.
func ListenProxy(targets ...string) (*Proxy, error) {
	p := &Proxy{targets: targets, conns: map[*pair]struct{}{}}
	p.Requests, p.Answers = newFlow(p), newFlow(p)
	for range targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.Close()
			return nil, fmt.Errorf("listen for the proxy: %w", err)
		}
		p.listeners = append(p.listeners, l)
	}
	for i, l := range p.listeners {
		p.wg.Go(func() { p.accept(l, targets[i]) })
	}
	return p, nil
}

// Addrs is where the proxy listens, in the order of the targets.
func (p *Proxy) Addrs() []string {
	var addrs []string
	for _, l := range p.listeners {
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// CutAll ends all connections and returns how many there were. New ones are let in, unless Refuse(true) was said before.
func (p *Proxy) CutAll(how Cut) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for c := range p.conns {
		c.end(how)
		delete(p.conns, c)
	}
	return n
}

// Refuse says whether new connections are reset at once.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Stall stops both directions without a word to either side.
func (p *Proxy) Stall() {
	p.Requests.Stall()
	p.Answers.Stall()
}

// Resume lets both directions flow again, without delay or limit.
func (p *Proxy) Resume() {
	p.Requests.Resume()
	p.Answers.Resume()
}

// Open is how many connections there are now, and Accepted how many there have been.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Accepted is how many connections there have been.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counted
}

// Close ends the proxy and all connections, and returns when its goroutines are gone.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, l := range p.listeners {
		l.Close()
	}
	p.CutAll(RST)
	p.wg.Wait()
}

func (p *Proxy) accept(l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if err != nil { // closed
			return
		}
		p.wg.Go(func() { p.serve(client.(*net.TCPConn), target) })
	}
}

func (p *Proxy) serve(client *net.TCPConn, target string) {
	p.mu.Lock()
	refuse := p.refuse || p.closed
	p.mu.Unlock()
	if refuse {
		reset(client)
		return
	}
	conn, err := net.Dial("tcp", target)
	if err != nil { // a target that is down is a port that nobody listens on
		reset(client)
		return
	}
	c := &pair{client: client, target: conn.(*net.TCPConn), gone: make(chan struct{})}
	if !p.add(c) {
		c.end(RST)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.Requests.copy(c, c.target, c.client) })
	wg.Go(func() { p.Answers.copy(c, c.client, c.target) })
	wg.Wait()
	p.drop(c, FIN)
}

func (p *Proxy) add(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return false
	}
	p.conns[c] = struct{}{}
	p.counted++
	return true
}

func (p *Proxy) drop(c *pair, how Cut) {
	c.end(how)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (c *pair) end(how Cut) {
	c.once.Do(func() {
		close(c.gone)
		for _, conn := range []*net.TCPConn{c.client, c.target} {
			if how == RST {
				reset(conn)
			} else {
				// The half-close first: closing a socket with unread bytes in it would send a RST.
				_ = conn.CloseWrite()
				conn.Close()
			}
		}
	})
}

func (c *pair) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}
