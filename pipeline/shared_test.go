package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"kferry/partitioner"
	"kferry/pipeline/cluster"
)

// Links with one source read it together, also when one of them cannot even begin; under another isolation a link reads for itself.
func TestLinksShareWhatIsRead(t *testing.T) {
	p := newTwins(t)
	const partitions = 4
	p.topic(p.east, "orders", partitions)
	p.write(p.east, "orders", partitions, 0, 20_000)
	bytes := func(links ...LinkConfig) (read int64) {
		cfg := p.config(links...)
		for _, l := range links {
			cfg.Clusters[l.To] = cluster.Config{Alias: l.To, Bootstrap: []string{"127.0.0.1:1"}} // nobody there
			if l.To != "gone" {
				cfg.Clusters[l.To] = cluster.Config{Alias: l.To, Bootstrap: p.cluster(l.To + fmt.Sprint(len(links))).ListenAddrs()}
			}
		}
		pl := p.pipeline(cfg, Options{Grace: time.Second})
		defer pl.Close()
		ended := make(chan error, 1)
		go func() { ended <- pl.Run(context.WithoutCancel(t.Context())) }()
		deadline, tick := time.After(30*time.Second), time.NewTicker(10*time.Millisecond)
		defer tick.Stop()
		for done := false; !done; {
			select {
			case <-deadline:
				t.Fatalf("not copied: %+v", pl.Snapshot())
			case <-tick.C:
			}
			done = true
			for _, l := range pl.Snapshot().Links {
				done = done && (l.To == "gone" || l.Records == 20_000)
			}
		}
		for _, s := range pl.sources {
			if n := s.Stats(); n.Partitions != partitions || n.Feeds != partitions {
				t.Errorf("%d links: %+v", len(links), n)
			}
			read += s.Stats().Bytes
		}
		pl.Stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		return read
	}
	one := bytes(DefaultLink("east", "a"))
	if three := bytes(DefaultLink("east", "a"), DefaultLink("east", "gone"), DefaultLink("east", "b")); float64(three) > 1.2*float64(one) {
		t.Errorf("three links read %d bytes, one %d", three, one)
	}
	other := DefaultLink("east", "b")
	other.Isolation = ReadUncommitted
	if two := bytes(DefaultLink("east", "a"), other); float64(two) < 1.8*float64(one) {
		t.Errorf("two isolations read %d bytes, one %d", two, one)
	}
}

// A source that refuses to be read for good ends the process with a sentence, which names the cluster once for all links.
func TestSourceRefuses(t *testing.T) {
	p := newTwins(t)
	old := kversion.Stable()
	old.SetMaxKeyVersion(1, 3) // Fetch
	p.east = p.cluster("old", kfake.MaxVersions(old))
	p.topic(p.east, "orders", 1)
	second := DefaultLink("east", "west")
	second.Name, second.Naming = "second", partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"orders": "copy"}}
	err := p.run(p.config(DefaultLink("east", "west"), second), Options{Grace: time.Second})
	if !errors.Is(err, cluster.ErrUnsupported) || !cluster.Fatal(err) || !strings.HasPrefix(err.Error(), "read from east: ") {
		t.Fatalf("ended with %v", err)
	}
}
