package bench

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// StreamConfig is the far side of a relay: Bytes of a workload to whoever connects.
type StreamConfig struct {
	Workload Workload
	Bytes    int64
	TLS      *Certificate
}

// Stream is the relay's source or its sink: a listener with one connection after the other.
type Stream struct {
	l     net.Listener
	wg    sync.WaitGroup
	mu    sync.Mutex
	conn  net.Conn
	bytes atomic.Int64
	first atomic.Int64 // unix nanoseconds
	last  atomic.Int64
	ended chan struct{} // gets one for the first connection that is over
}

// NewStreamSource writes the ring's batches over and over, by writev like the synthetic source, until cfg.Bytes are gone.
func NewStreamSource(cfg StreamConfig) (*Stream, error) {
	ring, err := cfg.Workload.Build(time.Now())
	if err != nil {
		return nil, err
	}
	return newStream(cfg.TLS, func(c net.Conn) error {
		for left := cfg.Bytes; left > 0; {
			var buffers net.Buffers
			for _, b := range ring.Batches {
				b = b[:min(int64(len(b)), left)]
				left -= int64(len(b))
				buffers = append(buffers, b)
			}
			if _, err := buffers.WriteTo(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// NewStreamSink reads and counts; of cfg only TLS matters.
func NewStreamSink(cfg StreamConfig) (*Stream, error) {
	var s *Stream
	ready := make(chan struct{})
	s, err := newStream(cfg.TLS, func(c net.Conn) error {
		<-ready
		return s.count(c)
	})
	close(ready)
	return s, err
}

func (s *Stream) count(c net.Conn) error {
	buf := make([]byte, 1<<20)
	for {
		n, err := c.Read(buf)
		if n > 0 {
			now := time.Now().UnixNano()
			s.first.CompareAndSwap(0, now)
			s.last.Store(now)
			s.bytes.Add(int64(n))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func newStream(security *Certificate, serve func(net.Conn) error) (*Stream, error) {
	server, err := security.server()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if server != nil {
		l = tls.NewListener(l, server)
	}
	s := &Stream{l: l, ended: make(chan struct{}, 1)}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conn = c
			s.mu.Unlock()
			_ = serve(c) // a relay that was cut short shows in the sink's tally
			c.Close()
			select {
			case s.ended <- struct{}{}:
			default:
			}
		}
	})
	return s, nil
}

// Addr is where the relay connects to.
func (s *Stream) Addr() string { return s.l.Addr().String() }

// Tally counts bytes alone.
func (s *Stream) Tally() Tally {
	return Tally{Bytes: s.bytes.Load(), First: time.Unix(0, s.first.Load()), Last: time.Unix(0, s.last.Load())}
}

// Close ends the listener and its connection.
func (s *Stream) Close() {
	s.l.Close()
	s.mu.Lock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
