package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	readyTimeout = 60 * time.Second // a broker answers after 3-4 s; two cores may be shared by many
	readyPoll    = 100 * time.Millisecond
	portTries    = 3
)

// Options says what cluster Start brings up. The zero value is one 4.4.0 broker on a plaintext listener.
type Options struct {
	Version string            // DefaultVersion if empty; 3.7 or later, or 2.8.x, which runs with ZooKeeper
	Brokers int               // 1 if 0; each is broker and controller
	Config  map[string]string // server.properties on top of, and instead of, ours
	JVM     []string          // flags of java on top of ours (a heap of 256 MB)
	Dir     string            // data, configuration and logs; empty: a temporary folder that Stop removes

	Security   *Security // not with ZooKeeper; adds the listeners TLS, MutualTLS, ExpiredTLS, SASLTLS and SASLPlaintext
	Authorizer bool      // not with ZooKeeper; StandardAuthorizer; the plaintext listener's clients stay super users
	Proxied    bool      // adds the listener Proxied, whose clients reach the brokers through Kafka.Proxy alone
}

// Kafka is a running cluster of real brokers.
type Kafka struct {
	Proxy *Proxy // between the clients of the listener Proxied and the brokers; nil unless asked for

	opts      Options
	clusterID string
	classPath string
	ports     ports
	brokers   []*Broker
	zooKeeper *zooKeeper // nil: the brokers are their own controllers
	tempDir   bool
}

// Start brings up a cluster and returns when every broker is registered and answers. The error of a broker that does
// not come up carries the end of its log. The context bounds the start alone; Stop ends the cluster.
func Start(ctx context.Context, opts Options) (*Kafka, error) {
	if opts.Version == "" {
		opts.Version = DefaultVersion
	}
	if opts.Brokers == 0 {
		opts.Brokers = 1
	}
	if usesZooKeeper(opts.Version) && (opts.Security != nil || opts.Authorizer) {
		return nil, fmt.Errorf("start Kafka %s: Security and Authorizer are written for KRaft: take version 3.7 or later", opts.Version)
	}
	var err error
	for range portTries {
		var k *Kafka
		if k, err = start(ctx, opts); err == nil {
			return k, nil
		}
		if !errors.Is(err, errBind) {
			break
		}
	}
	return nil, fmt.Errorf("start Kafka %s: %w", opts.Version, err)
}

func start(ctx context.Context, opts Options) (*Kafka, error) {
	k := &Kafka{opts: opts, clusterID: newClusterID()}
	if err := k.start(ctx); err != nil {
		k.Stop()
		return nil, err
	}
	return k, nil
}

func (k *Kafka) start(ctx context.Context) (err error) {
	if k.classPath, err = BrokerJars(k.opts.Version).ClassPath(ctx); err != nil {
		return err
	}
	if k.opts.Dir == "" {
		k.tempDir = true
		if k.opts.Dir, err = os.MkdirTemp("", "kferry-kafka-"); err != nil {
			return err
		}
	}
	if err := k.layOut(); err != nil {
		return err
	}
	if err := k.prepare(ctx); err != nil {
		return err
	}
	for _, b := range k.brokers {
		if err := b.launch(); err != nil {
			return err
		}
	}
	return k.WaitReady(ctx)
}

// prepare starts ZooKeeper, or formats the brokers' folders where there is none.
func (k *Kafka) prepare(ctx context.Context) error {
	if k.zooKeeper != nil {
		return k.zooKeeper.launch(k.opts.Version, k.classPath)
	}
	var g errgroup.Group
	for _, b := range k.brokers {
		g.Go(func() error { return b.format(ctx) })
	}
	return g.Wait()
}

// layOut gives every broker its ports and its server.properties.
func (k *Kafka) layOut() error {
	if usesZooKeeper(k.opts.Version) {
		ports, err := k.ports.take(1)
		if err != nil {
			return err
		}
		k.zooKeeper = &zooKeeper{dir: filepath.Join(k.opts.Dir, "zookeeper"), addr: loopback(ports[0])}
	}
	for i := range k.opts.Brokers {
		b := &Broker{kafka: k, id: i + 1, dir: filepath.Join(k.opts.Dir, fmt.Sprintf("broker-%d", i+1)), addrs: map[Listener]string{}}
		listeners := k.listeners()
		ports, err := k.ports.take(len(listeners))
		if err != nil {
			return err
		}
		for i, l := range listeners {
			b.addrs[l] = loopback(ports[i])
		}
		k.brokers = append(k.brokers, b)
	}
	if k.opts.Proxied {
		var targets []string
		for _, b := range k.brokers {
			targets = append(targets, b.addrs[Proxied])
		}
		var err error
		if k.Proxy, err = ListenProxy(targets...); err != nil {
			return err
		}
	}
	if k.opts.Security != nil {
		if err := k.opts.Security.write(k.opts.Dir); err != nil {
			return err
		}
	}
	for _, b := range k.brokers {
		if err := b.writeConfig(); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kafka) listeners() []Listener {
	l := []Listener{Plaintext}
	if k.zooKeeper == nil {
		l = append(l, controller)
	}
	if k.opts.Proxied {
		l = append(l, Proxied)
	}
	if k.opts.Security != nil {
		l = append(l, TLS, MutualTLS, ExpiredTLS, SASLTLS, SASLPlaintext)
	}
	return l
}

// WaitReady returns when every broker that runs answers and knows every other as registered.
func (k *Kafka) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	for _, b := range k.brokers {
		if b.process == nil {
			continue
		}
		if err := b.waitReady(ctx); err != nil {
			return fmt.Errorf("wait for broker %d: %w\n%s", b.id, err, k.Tail())
		}
	}
	return nil
}

// allIn tells whether the listed brokers are at least those that run.
func (k *Kafka) allIn(listed []kmsg.MetadataResponseBroker) bool {
	for _, b := range k.brokers {
		if b.process == nil {
			continue
		}
		if !slices.ContainsFunc(listed, func(l kmsg.MetadataResponseBroker) bool { return l.NodeID == int32(b.id) }) {
			return false
		}
	}
	return true
}

// Client opens a kgo client on the plaintext listener; the caller closes it.
func (k *Kafka) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(k.Bootstrap()...),
		kgo.MetadataMinAge(readyPoll), // topics come and go quickly in tests
	}, opts...)...)
}

// Bootstrap is the brokers' addresses on the plaintext listener.
func (k *Kafka) Bootstrap() []string { return k.BootstrapOn(Plaintext) }

// BootstrapOn is the addresses that clients of one listener start from; on Proxied, those of the proxy.
func (k *Kafka) BootstrapOn(l Listener) []string {
	var addrs []string
	for _, b := range k.brokers {
		addrs = append(addrs, b.advertised(l))
	}
	return addrs
}

// Version is the Apache Kafka version of the brokers.
func (k *Kafka) Version() string { return k.opts.Version }

// ClusterID is what the brokers give in Metadata.
func (k *Kafka) ClusterID() string { return k.clusterID }

// Dir holds the brokers' data and logs, and the certificates.
func (k *Kafka) Dir() string { return k.opts.Dir }

// Broker is the one with this id, from 1 on.
func (k *Kafka) Broker(id int) *Broker { return k.brokers[id-1] }

// Stop ends all brokers, and the proxy, and gives the ports back. Brokers whose folder goes with them are just killed.
func (k *Kafka) Stop() {
	if k.Proxy != nil {
		k.Proxy.Close()
	}
	if k.tempDir {
		k.Kill9()
	}
	// Together: a controller that is asked to go alone waits for the quorum that its peers no longer form.
	var wg sync.WaitGroup
	for _, b := range k.brokers {
		wg.Go(b.Stop)
	}
	wg.Wait()
	if k.zooKeeper != nil && k.zooKeeper.process != nil {
		k.zooKeeper.process.Kill9() // last: brokers say good-bye to it
	}
	if k.tempDir {
		_ = os.RemoveAll(k.opts.Dir)
	}
	k.ports.release()
}

// Configure changes the server.properties of every broker; each reads them at its next start.
func (k *Kafka) Configure(config map[string]string) error {
	changed := map[string]string{}
	maps.Copy(changed, k.opts.Config) // the map is the caller's
	maps.Copy(changed, config)
	k.opts.Config = changed
	for _, b := range k.brokers {
		if err := b.writeConfig(); err != nil {
			return err
		}
	}
	return nil
}

// Kill9 kills all brokers at once, as a power cut would.
func (k *Kafka) Kill9() {
	for _, b := range k.brokers {
		b.signalKill()
	}
	for _, b := range k.brokers {
		b.Kill9()
	}
}

// Restart starts every broker that does not run, on its old folder and ports, and returns when all are ready.
func (k *Kafka) Restart(ctx context.Context) error {
	for _, b := range k.brokers {
		if b.process != nil {
			continue
		}
		if err := b.launch(); err != nil {
			return err
		}
	}
	return k.WaitReady(ctx)
}

// Tail is the end of each broker's log, for a failed test.
func (k *Kafka) Tail() string {
	var s strings.Builder
	for _, b := range k.brokers {
		if b.last != nil {
			fmt.Fprintf(&s, "--- end of the log of broker %d, Kafka %s\n%s\n", b.id, k.opts.Version, b.last.Tail())
		}
	}
	if z := k.zooKeeper; z != nil && z.process != nil {
		fmt.Fprintf(&s, "--- end of the log of ZooKeeper\n%s\n", z.process.Tail())
	}
	return s.String()
}

// newClusterID is 16 random bytes as Kafka's Uuid prints them, never with a leading dash, which its tools take for a flag.
func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // the first of the 22 characters is then one of A to f
	return base64.RawURLEncoding.EncodeToString(id[:])
}
