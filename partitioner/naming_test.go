package partitioner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUpstreamChain(t *testing.T) {
	f := func(topic, separator, aliases string, want ...string) {
		t.Helper()
		got := UpstreamChain(topic, separator, strings.Fields(aliases))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", topic, diff)
		}
	}
	f("orders", ".", "a b")
	f("a.orders", ".", "a b", "a")
	f("b.a.orders", ".", "a b", "b", "a")
	f("eu.a.orders", ".", "a b") // eu is no cluster of ours, so this is an application's name
	f("a.", ".", "a b")          // nothing upstream: MirrorMaker 2 says none too
	f("a.b.", ".", "a b", "a")
	f("a_orders", "_", "a b", "a")
	f("a_orders", ".", "a b")
	f("a-b--orders", "--", "a a-b", "a-b")
	f("a.orders", ".", "")
}

// MirrorSourceConnectorTest, "no cycles", flow source→target.
func TestPrefixHasNoCycles(t *testing.T) {
	n := NewNamer(NamingConfig{Kind: Prefix}, "source", "target", ".", []string{"source", "target", "third"})
	for topic, want := range map[string]string{
		"topic1":                     "source.topic1",
		"source.topic1":              "source.source.topic1",
		"third.topic1":               "source.third.topic1",
		"targets.topic1":             "source.targets.topic1",
		"target.topic1":              "",
		"target.source.topic1":       "",
		"source.target.topic1":       "",
		"third.source.target.topic1": "",
		"target.third.topic1":        "",
	} {
		got, ok := n.Target(topic)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", topic, got, ok, want)
		}
	}
	if got, want := n.Refusal("source.target.topic1"), `topic "source.target.topic1" came from cluster target`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestIdentityAndRename(t *testing.T) {
	aliases := []string{"east", "west"}
	identity := NewNamer(NamingConfig{Kind: Identity}, "east", "west", ".", aliases)
	rename := NewNamer(NamingConfig{Kind: Rename, Rename: map[string]string{"orders": "orders-copy", "a": "b", "b": "a"}}, "east", "west", ".", aliases)
	f := func(n *Namer, topic, want string) {
		t.Helper()
		got, ok := n.Target(topic)
		if got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", topic, got, ok, want)
		}
	}
	f(identity, "orders", "orders")
	f(identity, "west.orders", "west.orders") // as MirrorMaker 2's IdentityReplicationPolicy
	f(rename, "orders", "orders-copy")
	f(rename, "payments", "payments")
	f(rename, "a", "b")
	f(rename, "b", "a")
	f(rename, "orders-copy", "") // two topics would be poured into one
	want := `topic "orders-copy" would share its name on the target with "orders", which is renamed to it`
	if got := rename.Refusal("orders-copy"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSourceIsTheInverseOfTarget(t *testing.T) {
	aliases := []string{"east", "west"}
	rename := map[string]string{"orders": "orders-copy", "a": "b", "b": "a"}
	for _, kind := range []NamingKind{Prefix, Identity, Rename} {
		n := NewNamer(NamingConfig{Kind: kind, Rename: rename}, "east", "west", ".", aliases)
		for _, topic := range []string{"orders", "payments", "a", "b", "east.x", "orders-copy", "west.orders", "east.west.x"} {
			target, ok := n.Target(topic)
			if !ok {
				continue
			}
			if back, ok := n.Source(target); !ok || back != topic {
				t.Errorf("%s: %s became %s and then %s, %v", kind, topic, target, back, ok)
			}
		}
	}
	prefix := NewNamer(NamingConfig{Kind: Prefix}, "east", "west", ".", aliases)
	for _, target := range []string{"orders", "east.", "east.west.orders", "eastx.orders"} {
		if back, ok := prefix.Source(target); ok {
			t.Errorf("prefix: %s is said to be the copy of %q", target, back)
		}
	}
	renamer := NewNamer(NamingConfig{Kind: Rename, Rename: rename}, "east", "west", ".", aliases)
	if back, ok := renamer.Source("orders"); ok {
		t.Errorf("rename: orders is written as orders-copy, but Source says %q", back)
	}
}

func TestTargetNameHasToBeLegal(t *testing.T) {
	n := NewNamer(NamingConfig{Kind: Prefix}, "east", "west", ".", nil)
	longest := strings.Repeat("x", TopicChars-len("east."))
	if _, ok := n.Target(longest); !ok {
		t.Errorf("%d characters are refused", TopicChars)
	}
	want := `topic name "east.` + longest + `x" has 250 characters, Kafka takes 249`
	if got := n.Refusal(longest + "x"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckTopic(t *testing.T) {
	f := func(topic, want string) {
		t.Helper()
		got := ""
		if err := CheckTopic(topic); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", topic, got, want)
		}
	}
	f("a.b_c-D9", "")
	f("", "a topic name cannot be empty")
	f("..", `a topic cannot be called ".."`)
	f("a b", `topic name "a b" has a character other than letters, digits, '.', '_' and '-'`)
}

func TestMapper(t *testing.T) {
	for _, partitions := range []int32{7, 12} {
		m, err := NewMapper("orders", 7, partitions)
		if err != nil {
			t.Fatal(err)
		}
		for p := int32(0); p < 7; p++ {
			if got, ok := m.Target(p); !ok || got != p {
				t.Errorf("%d of 7 to %d: got %d, %v", p, partitions, got, ok)
			}
		}
		if got, ok := m.Target(partitions); ok {
			t.Errorf("partition %d does not exist on the target yet, got %d", partitions, got)
		}
		if got, ok := m.Target(-1); ok {
			t.Errorf("partition -1: got %d", got)
		}
	}
	_, err := NewMapper("orders", 12, 4)
	want := `topic "orders" has 12 partitions on the source and 4 on the target: give the target topic at least 12 partitions, ` +
		`write to another topic (naming: rename), or exclude it`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
