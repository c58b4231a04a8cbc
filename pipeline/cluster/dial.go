package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// DialFunc opens a byte stream to an address, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial is DialWith with the default options.
func (c *Cluster) Dial(ctx context.Context, broker int32) (*Conn, error) {
	return c.DialWith(ctx, broker, ConnOptions{})
}

// DialWith connects to a broker by the address that its metadata gives, and does TLS, ApiVersions and SASL, all within
// DialTimeout. ctx counts for the dial only. Errors name the cluster, the broker and its address; Fatal tells those that only an
// operator can mend, which name the cure.
func (c *Cluster) DialWith(ctx context.Context, broker int32, opts ConnOptions) (*Conn, error) {
	addr, ok := c.Topology().Addr(broker)
	if !ok {
		if err := c.Refresh(ctx); err != nil {
			return nil, err
		}
		if addr, ok = c.Topology().Addr(broker); !ok {
			return nil, fmt.Errorf("dial %s broker %d: %w", c.cfg.Alias, broker, ErrUnknownBroker)
		}
	}
	return c.connect(ctx, peer{c.cfg.Alias, broker, addr}, opts.withDefaults(c.pool))
}

// connect gives a Conn that is ready for requests, or a reason that an operator understands.
func (c *Cluster) connect(ctx context.Context, p peer, opts ConnOptions) (*Conn, error) {
	within, cancel := context.WithTimeoutCause(ctx, opts.DialTimeout, ErrTimeout)
	defer cancel()
	nc, raw, err := c.dialSecure(within, p)
	if err != nil {
		return nil, c.diagnose(ctx, p, err)
	}
	conn := newConn(p, c.clientID(), nc, raw, opts, &c.requests)
	if err = conn.agree(within); err != nil {
		err = c.diagnose(ctx, p, err)
	} else if c.logins != nil {
		err = c.logins.judge(ctx, Explain(conn.authenticate(within, c.logins)))
	}
	if err != nil {
		conn.Reset()
		return nil, err
	}
	return conn, nil
}

// dialSecure opens the TCP connection and, where configured, TLS over it. nc is raw where there is no TLS.
func (c *Cluster) dialSecure(ctx context.Context, p peer) (nc, raw net.Conn, err error) {
	if raw, err = c.dialTCP(ctx, p); err != nil || c.cfg.TLS == nil {
		return raw, raw, err
	}
	cfg, err := c.cfg.TLS.load(p.addr)
	if err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("dial %s: %w", p, err)
	}
	cfg.ClientSessionCache = c.sessions.of(cfg)
	over := tls.Client(raw, cfg)
	if err := over.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, nil, fmt.Errorf("start TLS with %s: %w", p, Explain(timedOut(ctx, err)))
	}
	return over, raw, nil
}

func (c *Cluster) dialTCP(ctx context.Context, p peer) (net.Conn, error) {
	raw, err := c.cfg.Dial(ctx, "tcp", p.addr)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", p, timedOut(ctx, err))
	}
	return raw, nil
}

// timedOut puts the context's cause beside what the network made of its end.
func timedOut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// userTimeout is how long the peer may leave what we sent unacknowledged, or its window closed, as long as it has announced no mute.
const userTimeout = 60 * time.Second

// newDialer returns the TCP dialer of all our connections. Buffer sizes are left alone: setting them would switch off the kernel's
// autotuning. Keepalive finds a peer that is gone while nothing is in flight, the user timeout one that no longer
// acknowledges what we send.
func newDialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4},
		Control:         control,
	}
}
