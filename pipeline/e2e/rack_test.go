package e2e

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"kferry/pipeline/kafkatest"
)

// TestRack reads from the replica in kferry's own rack (KIP-392), and from the leader when that one is killed.
func TestRack(t *testing.T) {
	kafkatest.Need(t)
	from, err := kafkatest.Start(t.Context(), kafkatest.Options{Version: "4.4.0", Brokers: 3,
		Config: map[string]string{"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Stop()
	admin := adminOf(t, from)
	r, err := admin.CreateTopic(t.Context(), 1, 3, nil, "racks")
	if err == nil {
		err = r.Err
	}
	if err != nil {
		t.Fatal(err)
	}
	n := newNumbers(t, from, "racks", 1)
	n.write(5000)
	topics, err := admin.ListTopics(t.Context(), "racks")
	if err != nil {
		t.Fatal(err)
	}
	near := from.Broker(int(topics["racks"].Partitions[0].Leader)%3 + 1)
	door := from.Bootstrap()[near.ID()-1]

	to := west(t)
	cfg := config(from, to, "racks", "racks")
	var read atomic.Int64 // bytes from the near broker
	side := cfg.Clusters[alias(cfg)]
	side.Rack = near.Rack()
	side.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil && addr == door {
			nc = readCounter{nc, &read}
		}
		return nc, err
	}
	cfg.Clusters[alias(cfg)] = side
	caughtUp(t, cfg)
	exactly(t, to, alias(cfg)+".racks", 1, 0, 5000)
	if least := int64(5000 * 3); read.Load() < least {
		t.Errorf("%d bytes came from the near broker, at least %d were to be copied", read.Load(), least)
	}
	near.Kill9()
	n.write(5000)
	caughtUp(t, cfg)
	exactly(t, to, alias(cfg)+".racks", 1, 0, 10000)
}

// readCounter counts what is read.
type readCounter struct {
	net.Conn
	n *atomic.Int64
}

func (c readCounter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}
