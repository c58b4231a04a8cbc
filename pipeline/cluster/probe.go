package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Kafka broker that is spoken to in the wrong protocol hangs up without a word: to a plaintext port a TLS hello is a request of 369
// MB. So after such an end the other protocol is tried, once, on a connection of its own, to tell a wrong configuration from a
// broker that is just going down.

const probeTimeout = 3 * time.Second

// diagnose gives the error of a dial or handshake its class and its cure. The end of the connection is told but not wrapped: franz-go
// would put words of its own in the place of an io.EOF that it finds.
func (c *Cluster) diagnose(ctx context.Context, p peer, err error) error {
	switch {
	case Fatal(err) || !hungUp(err):
	case c.cfg.TLS != nil && c.speaksPlaintext(ctx, p):
		return fmt.Errorf("%w: the port does not speak TLS: remove tls from the configuration or use the broker's TLS port: %v", ErrTLS, err)
	case c.cfg.TLS == nil && c.speaksTLS(ctx, p):
		return fmt.Errorf("%w: the port speaks TLS: add tls to the configuration or use the broker's plaintext port: %v", ErrTLS, err)
	}
	return Explain(err)
}

// speaksTLS reports whether there is a TLS server at p.
func (c *Cluster) speaksTLS(ctx context.Context, p peer) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	raw, err := c.dialTCP(ctx, p)
	if err != nil {
		return false
	}
	defer raw.Close()
	// Nothing is sent over this connection, so whom we talk to does not matter.
	err = tls.Client(raw, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
	var op *net.OpError
	return err == nil || errors.As(err, &op) && op.Op == "remote error"
}

// speaksPlaintext reports whether a Kafka broker answers at p without TLS.
func (c *Cluster) speaksPlaintext(ctx context.Context, p peer) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	raw, err := c.dialTCP(ctx, p)
	if err != nil {
		return false
	}
	conn := newConn(p, c.clientID(), raw, raw, ConnOptions{}.withDefaults(c.pool), &c.requests)
	defer conn.Reset()
	return conn.agree(ctx) == nil
}

// Reach connects to the bootstrap addresses, one after the other, until one answers a request, and says in clear words what is
// wrong with each where none does. It sees what franz-go cannot name: a port of another protocol, a port that asks for SASL.
func (c *Cluster) Reach(ctx context.Context) error {
	var errs []error
	for _, addr := range c.cfg.Bootstrap {
		err := c.reach(ctx, peer{c.cfg.Alias, -1, addr})
		if err == nil {
			return nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (c *Cluster) reach(ctx context.Context, p peer) error {
	opts := ConnOptions{}.withDefaults(c.pool)
	conn, err := c.connect(ctx, p, opts)
	if err != nil {
		return err
	}
	defer conn.Close()
	within, cancel := context.WithTimeoutCause(ctx, opts.DialTimeout, ErrTimeout)
	defer cancel()
	none := kmsg.NewPtrMetadataRequest()
	none.Topics = []kmsg.MetadataRequestTopic{}
	if _, err = conn.RoundTrip(within, none); hungUp(err) && c.cfg.SASL == nil {
		if offered, ok := c.asksForSASL(within, p, opts); ok {
			return fmt.Errorf("ask Metadata of %s: %w: the port asks for SASL (%s) and the configuration has none: add sasl: %w", p,
				ErrCredentials, strings.Join(offered, ", "), err)
		}
	}
	return Explain(err)
}

// asksForSASL reports whether the port is one that wants SASL first, and with which mechanisms.
func (c *Cluster) asksForSASL(ctx context.Context, p peer, opts ConnOptions) (offered []string, ok bool) {
	conn, err := c.connect(ctx, p, opts)
	if err != nil {
		return nil, false
	}
	defer conn.Close()
	offered, code, err := conn.saslOffer(ctx, "NONE") // no mechanism has this name
	return offered, err == nil && code == kerr.UnsupportedSaslMechanism.Code
}
