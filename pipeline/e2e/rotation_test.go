package e2e

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

// TestRotation changes a password while records flow, on the broker first and in the file after a refusal, with all
// connections cut: kferry neither ends nor loses or repeats a record.
func TestRotation(t *testing.T) {
	const rotating = "rotating"
	from, k := east(t), secure(t)
	admin := adminOf(t, k)
	file := filepath.Join(t.TempDir(), "password")
	inFile := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	atBroker := func(text string) {
		t.Helper()
		if _, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: rotating, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: text}}); err != nil {
			t.Fatal(err)
		}
	}
	inFile("first")
	atBroker("first")
	acls(t, k, kadm.NewACLs().Allow("User:"+rotating).AllowHosts("*").Topics("*").ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead, kadm.OpWrite, kadm.OpCreate, kadm.OpAlter))

	cfg := config(from, k, "rotation", "rotation")
	var doors openings
	target := cfg.Links[0].To
	cfg.Clusters[target] = cluster.Config{Alias: target, Bootstrap: k.BootstrapOn(kafkatest.SASLPlaintext), Dial: doors.dial,
		SASL: &cluster.SASL{Mechanism: "SCRAM-SHA-512", Username: rotating, Password: cluster.NewSecretFrom(func() (string, error) {
			b, err := os.ReadFile(file)
			return string(b), err
		})}}
	create(t, from, "rotation", 1)
	n := startNumbers(t, from, "rotation", 1)
	l := start(t, cfg)
	copied := alias(cfg) + ".rotation"
	waitWritten(t, admin, copied, 100)
	atBroker("second")
	before := doors.cut()
	waitFor(t, "refusals", func() bool { return doors.count() >= before+20 })
	inFile("second")
	waitWritten(t, admin, copied, written(t, admin, copied)+100)
	end := n.finish()
	waitWritten(t, admin, copied, int64(end))
	l.stop()
	exactly(t, k, copied, 1, 0, end)
}

// openings are the connections that were dialed.
type openings struct {
	mu     sync.Mutex
	open   []net.Conn
	dialed int
}

func (o *openings) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.open = append(o.open, nc)
		o.dialed++
	}
	return nc, err
}

// cut closes all connections and returns how many there have been.
func (o *openings) cut() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, nc := range o.open {
		nc.Close()
	}
	o.open = nil
	return o.dialed
}

func (o *openings) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dialed
}
