package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"kferry/pipeline"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

const grantedUser = "granted" // has exactly what Grants says

var operations = map[string]kadm.ACLOperation{"Read": kadm.OpRead, "Write": kadm.OpWrite, "Create": kadm.OpCreate, "Alter": kadm.OpAlter, "DescribeConfigs": kadm.OpDescribeConfigs}

// TestGrants runs a link with exactly the grants that kferry check --print-acls prints, on both sides: topics are created, grow
// and are compared, and check finds nothing that is missing.
func TestGrants(t *testing.T) {
	k := secure(t)
	if _, err := adminOf(t, k).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: grantedUser, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password}}); err != nil {
		t.Fatal(err)
	}
	door := func(alias string) cluster.Config {
		return cluster.Config{Alias: alias, Bootstrap: k.BootstrapOn(kafkatest.SASLPlaintext),
			SASL: &cluster.SASL{Mechanism: "SCRAM-SHA-512", Username: grantedUser, Password: cluster.NewSecret(password)}}
	}
	grant := func(cfg pipeline.Config, alias string) {
		t.Helper()
		for _, g := range cfg.Grants() {
			if g.Cluster != alias {
				continue
			}
			b := kadm.NewACLs().Allow(g.Principal).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral)
			if g.Prefixed {
				b.ResourcePatternType(kadm.ACLPatternPrefixed)
			}
			if g.Topic == "" {
				b.Clusters()
			} else {
				b.Topics(g.Topic)
			}
			var ops []kadm.ACLOperation
			for _, op := range g.Operations {
				ops = append(ops, operations[op])
			}
			acls(t, k, b.Operations(ops...))
		}
	}
	plain := east(t)
	create(t, plain, "granted.in", 2)
	newNumbers(t, plain, "granted.in", 2).write(10)
	in := config(plain, k, "granted", "granted[.]in")
	in.Clusters["granteddst"] = door("granteddst")
	grant(in, "granteddst")
	caughtUp(t, in)
	exactly(t, k, "grantedsrc.granted.in", 2, 0, 10)
	if _, err := adminOf(t, plain).CreatePartitions(t.Context(), 1, "granted.in"); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, in)
	if topics, err := adminOf(t, k).ListTopics(t.Context(), "grantedsrc.granted.in"); err != nil || len(topics["grantedsrc.granted.in"].Partitions) != 3 {
		t.Fatalf("the copy did not grow to 3 partitions: %v, %v", topics, err)
	}
	passes(t, in)

	out := config(k, west(t), "granted2", "grantedsrc[.]granted[.]in")
	out.Clusters["granted2src"] = door("granted2src")
	grant(out, "granted2src")
	caughtUp(t, out)
	exactly(t, west(t), "granted2src.grantedsrc.granted.in", 2, 0, 10)
	passes(t, out)
}

// passes expects check to find no missing permission.
func passes(t *testing.T, cfg pipeline.Config) {
	t.Helper()
	p := newPipeline(t, cfg, pipeline.Options{})
	defer p.Close()
	report, err := p.Check(t.Context())
	if err != nil || !report.Passes() || !report.Reached() {
		t.Errorf("%+v, %v", report.Findings, err)
	}
}
