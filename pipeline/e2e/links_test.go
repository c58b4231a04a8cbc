package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

// join puts the clusters and links of several configurations into one process.
func join(cfgs ...pipeline.Config) pipeline.Config {
	all := cfgs[0]
	for _, cfg := range cfgs[1:] {
		for alias, c := range cfg.Clusters {
			all.Clusters[alias] = c
		}
		all.Links = append(all.Links, cfg.Links...)
	}
	return all
}

// between is a link between clusters that have other links too, so that it shares their aliases.
func between(cfg *pipeline.Config, from, to string, include ...string) {
	l := pipeline.DefaultLink(from, to)
	l.Topics.Include = include
	l.Refresh = time.Second
	cfg.Links = append(cfg.Links, l)
}

// TestFanOut copies one topic to two clusters at once.
func TestFanOut(t *testing.T) {
	from, one, two := east(t), west(t), old(t)
	create(t, from, "fan", lanes)
	load := startNumbers(t, from, "fan", lanes)
	cfg := config(from, one, "fan", "fan")
	cfg.Clusters["fandst2"] = cluster.Config{Alias: "fandst2", Bootstrap: two.Bootstrap()}
	between(&cfg, "fansrc", "fandst2", "fan")
	l := start(t, cfg)
	waitWritten(t, adminOf(t, one), "fansrc.fan", 1000)
	end := load.finish()
	for _, k := range []*kafkatest.Kafka{one, two} {
		waitWritten(t, adminOf(t, k), "fansrc.fan", int64(lanes*end))
	}
	l.stop()
	exactly(t, one, "fansrc.fan", lanes, 0, end)
	exactly(t, two, "fansrc.fan", lanes, 0, end)
}

// TestManyToOne copies topics of one name from two clusters to a third: the prefix keeps them apart.
func TestManyToOne(t *testing.T) {
	one, two, to := east(t), old(t), west(t)
	for i, k := range []*kafkatest.Kafka{one, two} {
		create(t, k, "many", 2)
		newNumbers(t, k, "many", 2).write(10 + i)
	}
	caughtUp(t, join(config(one, to, "many-one", "many"), config(two, to, "many-two", "many")))
	exactly(t, to, "many-onesrc.many", 2, 0, 10)
	exactly(t, to, "many-twosrc.many", 2, 0, 11)
}

// TestBothWays copies one topic name in both directions: nothing comes home, whatever the filter lets through.
func TestBothWays(t *testing.T) {
	a, b := east(t), west(t)
	create(t, a, "both", 1)
	create(t, b, "both", 1)
	newNumbers(t, a, "both", 1).write(10)
	newNumbers(t, b, "both", 1).write(11)
	cfg := config(a, b, "both", "both", ".*[.]both")
	between(&cfg, "bothdst", "bothsrc", "both", ".*[.]both")
	l := start(t, cfg)
	waitWritten(t, adminOf(t, b), "bothsrc.both", 10)
	waitWritten(t, adminOf(t, a), "bothdst.both", 11)
	// A topic that is born now shows, when it is copied, that every older one has been looked at again.
	for i := range 2 {
		create(t, a, fmt.Sprint(i, ".both"), 1)
		create(t, b, fmt.Sprint(i, ".both"), 1)
		for _, link := range []struct {
			k      *kafkatest.Kafka
			copied string
		}{{b, "bothsrc"}, {a, "bothdst"}} {
			waitFor(t, "a new topic", func() bool { return len(ends(t, link.k, fmt.Sprintf("%s.%d.both", link.copied, i))) == 1 })
		}
	}
	l.stop()
	for _, k := range []*kafkatest.Kafka{a, b} {
		topics, err := adminOf(t, k).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, topic := range topics.Names() {
			if strings.Count(topic, "bothsrc")+strings.Count(topic, "bothdst") > 1 {
				t.Errorf("%s has come home", topic)
			}
		}
	}
	exactly(t, b, "bothsrc.both", 1, 0, 10)
	exactly(t, a, "bothdst.both", 1, 0, 11)
	exactly(t, a, "both", 1, 0, 10)
	exactly(t, b, "both", 1, 0, 11)
}

// TestSameCluster refuses two addresses of one cluster, which only its id tells.
func TestSameCluster(t *testing.T) {
	k := west(t)
	create(t, k, "same", 1)
	cfg := config(k, k, "same", "same")
	dst := cfg.Clusters["samedst"]
	dst.Bootstrap = k.BootstrapOn(kafkatest.Proxied)
	cfg.Clusters["samedst"] = dst
	_, err := try(t, cfg)
	if !errors.Is(err, pipeline.ErrRefused) || !strings.Contains(err.Error(), "samesrc and samedst are one cluster (id "+k.ClusterID()+")") {
		t.Fatalf("the job ended with %v", err)
	}
}

// TestOntoExisting refuses a target that holds records already, by name, unless it is told that others write there; then it
// appends, and neither side's records are lost or come twice while both write.
func TestOntoExisting(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "onto", 2)
	create(t, to, "ontosrc.onto", 2)
	load := startNumbers(t, from, "onto", 2)
	foreign := startForeign(t, to, "ontosrc.onto", 2)
	waitWritten(t, adminOf(t, to), "ontosrc.onto", 10)

	cfg := config(from, to, "onto", "onto")
	_, err := try(t, cfg)
	if !errors.Is(err, pipeline.ErrRefused) || !strings.Contains(err.Error(), "ontosrc.onto holds records") || !strings.Contains(err.Error(), "onto_existing: true") {
		t.Fatalf("the job ended with %v", err)
	}
	file := yaml("onto", from.Bootstrap(), to.Bootstrap(), "onto")
	p := launch(t, file, "run")
	p.ends(2)
	p.oneSentence("ontosrc.onto holds records", "onto_existing: true")

	cfg.Links[0].OntoExisting = true
	proxied(&cfg, from, to)
	admin := adminOf(t, to)
	for range 2 {
		l := start(t, cfg)
		for range 6 {
			waitWritten(t, admin, "ontosrc.onto", written(t, admin, "ontosrc.onto")+400)
			to.Proxy.CutAll(kafkatest.RST)
		}
		l.stop()
	}
	end, theirs := load.finish(), foreign()
	caughtUp(t, cfg)
	for p, records := range read(t, to, "ontosrc.onto") {
		ours, others := 0, 0
		for _, r := range records {
			next, key := &ours, string(r.Key)
			if strings.HasPrefix(key, "foreign-") {
				next, key = &others, strings.TrimPrefix(key, "foreign-")
			}
			if key != strconv.Itoa(*next) {
				t.Fatalf("partition %d at %d: %s, want number %d", p, r.Offset, r.Key, *next)
			}
			*next++
		}
		if ours != end || others != theirs {
			t.Fatalf("partition %d holds %d of ours and %d others, want %d and %d", p, ours, others, end, theirs)
		}
	}
}

// startForeign writes to a target's topic beside kferry until it is told to end; then it returns how many records each
// partition got.
func startForeign(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32) (finish func() int) {
	t.Helper()
	cl := client(t, k, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ctx, cancel := context.WithCancel(t.Context())
	total := make(chan int, 1)
	go func() {
		n := 0
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for ; ; n++ {
			select {
			case <-ctx.Done():
				total <- n
				return
			case <-pace.C:
			}
			var records []*kgo.Record
			for p := range partitions {
				records = append(records, &kgo.Record{Topic: topic, Partition: p, Key: fmt.Appendf(nil, "foreign-%d", n), Value: []byte(padding)})
			}
			if err := cl.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
				t.Errorf("write to %s beside kferry: %v", topic, err)
			}
		}
	}()
	n := 0
	finish = func() int {
		if ctx.Err() == nil {
			cancel()
			n = <-total
		}
		return n
	}
	t.Cleanup(func() { finish() })
	return finish
}
