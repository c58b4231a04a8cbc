package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Listener is one of a broker's doors, by its name in server.properties.
type Listener string

const (
	Plaintext     Listener = "PLAINTEXT"      // always there; also the brokers' own
	Proxied       Listener = "PROXIED"        // plaintext, reached through Kafka.Proxy alone
	TLS           Listener = "TLS"            // the server shows a certificate, clients need none
	MutualTLS     Listener = "MTLS"           // clients have to show a certificate of the CA
	ExpiredTLS    Listener = "EXPIRED"        // TLS with a certificate that ended yesterday
	SASLTLS       Listener = "SASL_SSL"       // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER inside TLS
	SASLPlaintext Listener = "SASL_PLAINTEXT" // the same in clear
	controller    Listener = "CONTROLLER"
)

var protocols = map[Listener]string{
	controller:    "PLAINTEXT",
	Plaintext:     "PLAINTEXT",
	Proxied:       "PLAINTEXT",
	TLS:           "SSL",
	MutualTLS:     "SSL",
	ExpiredTLS:    "SSL",
	SASLTLS:       "SASL_SSL",
	SASLPlaintext: "SASL_PLAINTEXT",
}

var (
	errBind    = errors.New("a port is taken")                        // lost to someone else since we took it
	errSession = errors.New("ZooKeeper still holds the last session") // of a killed broker, which has not timed out yet
)

// Broker is one node of a Kafka, broker and, but with ZooKeeper, controller in one process. Its methods are for one goroutine at a time.
type Broker struct {
	kafka   *Kafka
	id      int
	dir     string
	addrs   map[Listener]string
	process *Process // nil: does not run
	last    *Process // the newest, ended or not; nil: never ran
}

// ID is the node id.
func (b *Broker) ID() int { return b.id }

// Rack is where the broker says it stands; each stands alone.
func (b *Broker) Rack() string { return fmt.Sprintf("rack-%d", b.id) }

// Process is the running java, nil when it is down.
func (b *Broker) Process() *Process { return b.process }

// Stop ends the broker in good order: it hands over its leaderships and closes its log.
func (b *Broker) Stop() {
	if b.process != nil {
		b.process.Stop()
		b.process = nil
	}
}

// Kill9 kills the broker in the middle of what it does.
func (b *Broker) Kill9() {
	if b.process != nil {
		b.process.Kill9()
		b.process = nil
	}
}

func (b *Broker) signalKill() {
	if b.process != nil {
		b.process.Signal(os.Kill)
	}
}

// Start starts a broker that is down, on its old folder and ports, and returns when all of the cluster is ready.
func (b *Broker) Start(ctx context.Context) error {
	if b.process == nil {
		if err := b.launch(); err != nil {
			return err
		}
	}
	return b.kafka.WaitReady(ctx)
}

func (b *Broker) advertised(l Listener) string {
	if l == Proxied && b.kafka.Proxy != nil {
		return b.kafka.Proxy.Addrs()[b.id-1]
	}
	return b.addrs[l]
}

// writeConfig writes server.properties, for a broker that is small and quick to start, and the logging configuration.
func (b *Broker) writeConfig() error {
	var listeners, advertised, protocol []string
	for _, l := range b.kafka.listeners() {
		listeners = append(listeners, fmt.Sprintf("%s://%s", l, b.addrs[l]))
		protocol = append(protocol, fmt.Sprintf("%s:%s", l, protocols[l]))
		if l != controller {
			advertised = append(advertised, fmt.Sprintf("%s://%s", l, b.advertised(l)))
		}
	}
	replicas := fmt.Sprint(min(3, len(b.kafka.brokers)))
	config := map[string]string{
		"broker.rack":                    b.Rack(),
		"listeners":                      strings.Join(listeners, ","),
		"advertised.listeners":           strings.Join(advertised, ","),
		"inter.broker.listener.name":     string(Plaintext),
		"listener.security.protocol.map": strings.Join(protocol, ","),
		"log.dirs":                       filepath.Join(b.dir, "data"),

		"auto.create.topics.enable":                "false",
		"default.replication.factor":               replicas,
		"offsets.topic.replication.factor":         replicas,
		"offsets.topic.num.partitions":             "8",
		"transaction.state.log.replication.factor": replicas,
		"transaction.state.log.num.partitions":     "8",
		"transaction.state.log.min.isr":            "1",
		"group.initial.rebalance.delay.ms":         "0",
		"log.retention.ms":                         "-1", // tests write records with old timestamps
		"log.retention.check.interval.ms":          "2000",
		"log.initial.task.delay.ms":                "500",
		"log.cleaner.dedupe.buffer.size":           "8388608",
		"log.cleaner.backoff.ms":                   "500",
	}
	maps.Copy(config, b.membership())
	if s := b.kafka.opts.Security; s != nil {
		maps.Copy(config, s.config(b.kafka.opts.Dir))
	}
	if b.kafka.opts.Authorizer {
		config["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		config["super.users"] = "User:ANONYMOUS"
	}
	maps.Copy(config, b.kafka.opts.Config)
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if err := writeProperties(b.path("server.properties"), config); err != nil {
		return err
	}
	return os.WriteFile(b.path("logging.properties"), []byte(logging(b.kafka.opts.Version, "INFO", stdout)), 0o644)
}

// membership is the part of server.properties that makes the broker one of its cluster. A killed broker comes back only when
// its old session has ended, so sessions are short.
func (b *Broker) membership() map[string]string {
	if z := b.kafka.zooKeeper; z != nil {
		return map[string]string{
			"broker.id":                    fmt.Sprint(b.id),
			"zookeeper.connect":            z.addr,
			"zookeeper.session.timeout.ms": "4000",
		}
	}
	var voters []string
	for _, peer := range b.kafka.brokers {
		voters = append(voters, fmt.Sprintf("%d@%s", peer.id, peer.addrs[controller]))
	}
	return map[string]string{
		"process.roles":                "broker,controller",
		"node.id":                      fmt.Sprint(b.id),
		"controller.quorum.voters":     strings.Join(voters, ","),
		"controller.listener.names":    string(controller),
		"broker.session.timeout.ms":    "4000",
		"broker.heartbeat.interval.ms": "500",
	}
}

func (b *Broker) format(ctx context.Context) error {
	args := []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", b.kafka.classPath,
		"kafka.tools.StorageTool", "format", "-t", b.kafka.clusterID, "-c", b.path("server.properties")}
	if s := b.kafka.opts.Security; s != nil {
		args = append(args, s.formatArgs()...)
	}
	if out, err := exec.CommandContext(ctx, "java", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format broker %d: %w\n%s", b.id, err, out)
	}
	return nil
}

func (b *Broker) launch() error {
	p, err := StartProcess(Command{
		Name: "java",
		Args: slices.Concat([]string{"-Xms64m", "-Xmx256m", "-XX:+UseSerialGC"}, b.kafka.opts.JVM, []string{
			loggingFlag(b.kafka.opts.Version, b.path("logging.properties")),
			"-cp", b.kafka.classPath, "kafka.Kafka", b.path("server.properties")}),
		Dir: b.dir,
		Log: b.path("kafka.log"),
	})
	if err != nil {
		return fmt.Errorf("start broker %d: %w", b.id, err)
	}
	b.process, b.last = p, p
	return nil
}

// waitReady returns when the broker answers, which it does once it is unfenced, and lists all brokers that run.
func (b *Broker) waitReady(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addrs[Plaintext]))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		// Asked by hand: kadm would answer from a cache.
		all := kmsg.NewPtrMetadataRequest()
		all.Topics = []kmsg.MetadataRequestTopic{}
		m, err := all.RequestWith(ctx, client.SeedBrokers()[0])
		if err == nil && b.kafka.allIn(m.Brokers) && m.ControllerID >= 0 {
			if b.kafka.zooKeeper != nil && m.ClusterID != nil { // chosen by the brokers, not by us
				b.kafka.clusterID = *m.ClusterID
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-b.process.Done():
			died := b.died()
			if !errors.Is(died, errSession) {
				return died
			}
			if err := b.launch(); err != nil {
				return err
			}
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// died is the error of a broker that ended by itself.
func (b *Broker) died() error {
	b.process = nil
	log, err := os.ReadFile(b.path("kafka.log"))
	switch {
	case err != nil:
	case bytes.Contains(log, []byte("Address already in use")):
		return errBind
	case b.kafka.zooKeeper != nil && bytes.Contains(log, []byte("KeeperErrorCode = NodeExists")):
		return errSession
	}
	return fmt.Errorf("ended by itself: %w", b.last.err)
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }
