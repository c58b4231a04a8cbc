package control

import (
	"testing"

	"kferry/partitioner"
)

func TestSameCluster(t *testing.T) {
	p := newPair(t, ".*")
	id, same, err := SameCluster(p.ctx, p.topics.Source, p.topics.Target)
	p.must(err)
	if same || id != "source-id" {
		t.Fatalf("%s, %v", id, same)
	}
	id, same, err = SameCluster(p.ctx, p.topics.Source, p.client(p.source))
	p.must(err)
	if !same || id != "source-id" {
		t.Fatalf("%s, %v", id, same)
	}
}

// MirrorSourceConnectorTest's cycles by name, and those that only the cluster
// id shows.
func TestAcyclic(t *testing.T) {
	aliases := make(Aliases)
	for _, known := range [][2]string{{"east", "E"}, {"west", "W"}, {"north", "N"}, {"unreached", ""}, {"dublin", "W"}, {"west", "W"}} {
		aliases.Add(known[0], known[1])
	}
	n := Acyclic{
		Namer:   partitioner.NewNamer(partitioner.NamingConfig{Kind: partitioner.Prefix}, "east", "west", ".", aliases.Names()),
		Aliases: aliases, Separator: ".", TargetID: "W",
	}
	f := func(topic, want, refusal string) {
		t.Helper()
		got, ok := n.Target(topic)
		if got != want || ok != (want != "") || n.Refusal(topic) != refusal {
			t.Errorf("Target(%q) = %q, %v (%s); want %q (%s)", topic, got, ok, n.Refusal(topic), want, refusal)
		}
	}
	f("orders", "east.orders", "")
	f("north.orders", "east.north.orders", "")
	f("eu.orders", "east.eu.orders", "") // no cluster is called eu
	f("dublinorders", "east.dublinorders", "")
	f("unreached.orders", "east.unreached.orders", "")
	f("west.orders", "", `topic "west.orders" came from the target, cluster id W, there called west`)
	f("dublin.orders", "", `topic "dublin.orders" came from the target, cluster id W, there called dublin`)
	f("north.dublin.orders", "", `topic "north.dublin.orders" came from the target, cluster id W, there called dublin`)

	// A target without an id leaves the names.
	n.TargetID = ""
	f("dublin.orders", "east.dublin.orders", "")
	f("west.orders", "", `topic "west.orders" came from cluster west`)
}
