package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/batch"
)

// idleBytes is what the pool of connections that bring none of their own keeps idle.
const idleBytes = 64 * mib

// maxControlBytes bounds an answer to franz-go's requests: the metadata of 100,000 partitions are about 10 MiB.
const maxControlBytes = 64 * mib

// Cluster is one side of a link. All methods are safe for concurrent use.
type Cluster struct {
	cfg    Config
	log    *slog.Logger
	client *kgo.Client
	admin  *kadm.Client
	pool   *batch.Pool
	logins *logins // nil without SASL

	sessions sessions // of TLS
	requests requests

	topology atomic.Pointer[Topology]
	refresh  *refresher
}

// Open validates cfg, reads the TLS files once, and returns a Cluster that has not dialed anyone yet. Close it when done.
func Open(cfg Config, log *slog.Logger) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", cfg.Alias, err)
	}
	if cfg.TLS != nil {
		if _, err := cfg.TLS.load(""); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", cfg.Alias, err)
		}
	}
	if cfg.Dial == nil {
		cfg.Dial = newDialer().DialContext
	}
	c := &Cluster{
		cfg:     cfg,
		log:     log.With("cluster", cfg.Alias),
		pool:    batch.NewPool(idleBytes),
		refresh: newRefresher(),
	}
	ca := ""
	if cfg.TLS != nil {
		ca = cfg.TLS.CA
	}
	c.logins = newLogins(cfg.SASL, ca)
	c.topology.Store(newTopology())
	client, err := c.NewClient()
	if err != nil {
		return nil, err
	}
	c.client, c.admin = client, kadm.NewClient(client)
	return c, nil
}

// NewClient returns a franz-go client of its own for this cluster, with the same addresses, TLS and SASL: for consuming, or with
// options that Client lacks (hooks excepted: they are the Cluster's). The caller closes it.
func (c *Cluster) NewClient(extra ...kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.cfg.Bootstrap...),
		kgo.ClientID(c.clientID()),
		kgo.SoftwareNameAndVersion(softwareName, softwareVersion),
		kgo.WithLogger(kgoLogger{c.log}),
		kgo.Dialer(c.dialClient),
		kgo.BrokerMaxReadBytes(maxControlBytes),
		kgo.RequestRetries(3), // whoever asks has a loop of its own
		kgo.DisableClientMetrics(),
		kgo.WithHooks(&c.requests),
	}
	if c.cfg.Rack != "" {
		opts = append(opts, kgo.Rack(c.cfg.Rack))
	}
	if c.logins != nil {
		opts = append(opts, kgo.SASL(c.logins.mechanism))
	}
	client, err := kgo.NewClient(append(opts, extra...)...)
	if err != nil {
		return nil, fmt.Errorf("open client of %s: %w", c.cfg.Alias, err)
	}
	return client, nil
}

// dialClient is franz-go's way to a broker: our dialer and our TLS, so that a mismatch reads the same everywhere.
func (c *Cluster) dialClient(ctx context.Context, _, addr string) (net.Conn, error) {
	within, cancel := context.WithTimeoutCause(ctx, defaultDialTimeout, ErrTimeout)
	defer cancel()
	p := peer{c.cfg.Alias, -1, addr}
	nc, _, err := c.dialSecure(within, p)
	if err != nil {
		return nil, c.diagnose(ctx, p, err)
	}
	return nc, nil
}

// Alias returns the cluster's name in the configuration.
func (c *Cluster) Alias() string { return c.cfg.Alias }

// Rack returns the rack to send with fetches, empty for none.
func (c *Cluster) Rack() string { return c.cfg.Rack }

// Client returns the franz-go client for everything that is not Fetch or Produce. It belongs to the Cluster.
func (c *Cluster) Client() *kgo.Client { return c.client }

// Admin returns the admin client over Client.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// ID returns the cluster's id, asking for it the first time.
func (c *Cluster) ID(ctx context.Context) (string, error) {
	if id := c.Topology().ClusterID; id != "" {
		return id, nil
	}
	if err := c.Refresh(ctx); err != nil {
		return "", err
	}
	id := c.Topology().ClusterID
	if id == "" {
		return "", fmt.Errorf("ask %s for its cluster id: %w: the metadata have none", c.cfg.Alias, ErrProtocol)
	}
	return id, nil
}

// Close closes Client. Connections from Dial are their owners'.
func (c *Cluster) Close() { c.client.Close() }

func (c *Cluster) clientID() string { return cmp.Or(c.cfg.ClientID, DefaultClientID) }
