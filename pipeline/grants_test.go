package pipeline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
)

func TestNamed(t *testing.T) {
	f := func(pattern, topic string, prefixed bool) {
		t.Helper()
		if got := named(pattern); got.Topic != topic || got.Prefixed != prefixed {
			t.Errorf("%s: got %+v", pattern, got)
		}
	}
	f("orders", "orders", false)
	f("orders.*", "orders", true)
	f("orders.eu", "orders", true)
	f("orders[.]eu", "orders.eu", false)
	f(`orders\.eu-\d+`, "orders.eu-", true)
	f("ab*", "a", true)
	f("ab?c", "a", true)
	f("ab{0,2}", "a", true)
	f("ab+", "ab", true)
	f("a[.]*", "a", true)
	f(".*", "*", false)
	f("a*", "*", false)
	f("a|b", "*", false)
	f("(?i)a", "*", false)
	f("", "*", false)
}

func TestGrants(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Clusters["east"] = cluster.Config{Alias: "east", SASL: &cluster.SASL{Mechanism: "PLAIN", Username: "k", Password: cluster.NewSecret("p")}}
	cfg.Clusters["west"] = cluster.Config{Alias: "west", TLS: &cluster.TLS{Cert: "c", Key: "k"}}
	cfg.Clusters["south"] = cluster.Config{Alias: "south", SASL: &cluster.SASL{Mechanism: "OAUTHBEARER", OAuth: &cluster.OAuth{TokenFile: "t"}}}
	one, two := DefaultLink("east", "west"), DefaultLink("east", "south")
	one.Topics.Include = []string{"orders.*", "audit"}
	two.Topics.Include = []string{"audit"}
	two.Naming = partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"audit": "audit-copy"}}
	cfg.Links = []LinkConfig{one, two}
	var got []string
	for _, g := range cfg.Grants() {
		topic := g.Topic
		if g.Prefixed {
			topic += "..."
		}
		got = append(got, strings.Join([]string{g.Cluster, g.Principal, topic, strings.Join(g.Operations, ",")}, " "))
	}
	const all = " Read,Write,Create,Alter,DescribeConfigs"
	want := []string{
		"east User:k audit Read,DescribeConfigs",
		"east User:k kferry-state.... Read",
		"east User:k orders... Read,DescribeConfigs",
		"south User:SUBJECT_OF_THE_TOKEN  DescribeConfigs",
		"south User:SUBJECT_OF_THE_TOKEN audit" + all,
		"south User:SUBJECT_OF_THE_TOKEN audit-copy" + all,
		"south User:SUBJECT_OF_THE_TOKEN kferry-state.east.internal Read,Write,Create,DescribeConfigs",
		"west User:CN=SUBJECT_OF_THE_CERTIFICATE  DescribeConfigs",
		"west User:CN=SUBJECT_OF_THE_CERTIFICATE east.audit" + all,
		"west User:CN=SUBJECT_OF_THE_CERTIFICATE east.orders..." + all,
		"west User:CN=SUBJECT_OF_THE_CERTIFICATE kferry-state.east.internal Read,Write,Create,DescribeConfigs",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
