package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// traffic is what an embedded cluster is asked, by API.
type traffic struct {
	mu  sync.Mutex
	all map[string]asked
}

type asked struct{ requests, bytes int }

func watch(c *kfake.Cluster) *traffic {
	n := &traffic{all: make(map[string]asked)}
	c.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		api := kmsg.NameForKey(req.Key())
		was := n.all[api]
		n.all[api] = asked{was.requests + 1, was.bytes + len(req.AppendTo(nil))}
		return nil, nil, false
	})
	return n
}

// take gives what was asked since the last take.
func (n *traffic) take() map[string]asked {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.all
	n.all = make(map[string]asked)
	return was
}

func (n *traffic) of(api string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[api].requests
}

// cuttable is a dialer whose connections can be ended all at once.
type cuttable struct {
	mu   sync.Mutex
	open []net.Conn
}

func (c *cuttable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		c.mu.Lock()
		c.open = append(c.open, nc)
		c.mu.Unlock()
	}
	return nc, err
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.open {
		nc.Close()
	}
	c.open = nil
}

// The requests that are not data do not grow with the partitions: not at the start, not while nothing happens, and not when all
// partitions have another leader, or all connections end, at once.
func TestRequestsAreBounded(t *testing.T) {
	const partitions, brokers = 5_000, 3
	p := newTwins(t)
	p.topic(p.east, "many", partitions)
	east, west := watch(p.east), watch(p.west)
	cfg := p.config(DefaultLink("east", "west"))
	var conns cuttable
	for alias, c := range cfg.Clusters {
		c.Dial = conns.dial
		cfg.Clusters[alias] = c
	}
	pl, end := p.begin(cfg)
	began := time.Now()
	// fetches is how many a second may be on top: of three connections to each broker, one waits 250 ms and two 100 ms.
	bounded := func(when string, fetches float64, source, target map[string]asked) {
		t.Helper()
		for _, s := range []struct {
			name string
			n    *traffic
			most map[string]asked
		}{{"source", east, source}, {"target", west, target}} {
			got := s.n.take()
			t.Logf("%s, %s, %.1f s: %v", when, s.name, time.Since(began).Seconds(), got)
			for api, a := range got {
				most := s.most[api]
				if api == "Fetch" {
					most.requests += int(fetches * time.Since(began).Seconds())
				}
				if a.requests > most.requests || a.bytes > most.bytes {
					t.Errorf("%s: %d requests of %s to the %s with %d bytes, %d with %d are enough", when, a.requests, api, s.name, a.bytes, most.requests, most.bytes)
				}
			}
		}
		began = time.Now()
	}
	const most = brokers * (4 + 2*10)

	// eventually looks seldom: a look at 5,000 lanes costs as much as some of what is measured.
	eventually := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("after a minute still waiting until %s", what)
			}
		}
	}
	eventually("all lanes run", func() bool { return pl.Snapshot().Links[0].Lanes["running"] == partitions })
	bounded("start", most, map[string]asked{
		"ApiVersions": {30, 3_000}, "Metadata": {15, 1_500}, "DescribeConfigs": {3, 300}, "ListOffsets": {brokers, 20 * partitions}, "Fetch": {20, 100 * partitions},
	}, map[string]asked{
		"ApiVersions": {30, 3_000}, "Metadata": {30, 3_000}, "DescribeConfigs": {5, 500}, "CreateTopics": {4, 400}, "InitProducerID": {2, 100},
		"ListOffsets": {4 * brokers, 20 * partitions}, "Produce": {20 * brokers, 100 * partitions},
	})

	// What is at its end moves to the connection for that.
	for settled := time.Now().Add(20 * time.Second); ; {
		was := east.of("Fetch")
		time.Sleep(time.Second)
		if n := east.of("Fetch") - was; n <= 5*brokers {
			break
		} else if time.Now().After(settled) {
			t.Fatalf("%d fetches in a second, with nothing to fetch", n)
		}
	}
	bounded("settle", most, map[string]asked{"ApiVersions": {9, 900}, "Metadata": {5, 500}, "Fetch": {20, 200 * partitions}}, map[string]asked{"Metadata": {5, 500}})
	time.Sleep(3 * time.Second) // a rate needs time
	bounded("idle", brokers*4, map[string]asked{"Metadata": {3, 300}, "Fetch": {5, 5_000}}, map[string]asked{"Metadata": {3, 300}})

	// The source's numbers have those of the test's own producer in them.
	trouble := func(what string, total int64) {
		p.write(p.east, "many", partitions, 0, partitions)
		eventually("the records are copied", func() bool { return pl.Snapshot().Links[0].Records == total })
		bounded(what, most, map[string]asked{
			"ApiVersions": {30, 3_000}, "Metadata": {20, 2_000}, "InitProducerID": {1, 100}, "GetTelemetrySubscriptions": {1, 100},
			"Produce": {partitions / 10, 200 * partitions}, "Fetch": {50, 300 * partitions},
		}, map[string]asked{
			"ApiVersions": {30, 3_000}, "Metadata": {20, 2_000}, "InitProducerID": {1, 100}, "DescribeProducers": {partitions / 5, 50 * partitions},
			"ListOffsets": {2 * partitions / 5, 200 * partitions}, "Produce": {2 * partitions, 500 * partitions},
		})
	}
	for i := range int32(partitions) {
		for c, topic := range map[*kfake.Cluster]string{p.east: "many", p.west: "east.many"} {
			if err := c.MoveTopicPartition(topic, i, (c.LeaderFor(topic, i)+1)%brokers); err != nil {
				t.Fatal(err)
			}
		}
	}
	trouble("other leaders", partitions)
	conns.cut()
	trouble("cut", 2*partitions)
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

var sent = regexp.MustCompile(`(?m)^kferry_requests_total\{cluster="([a-z]+)",api="(\w+)"\} (\d+)$`)

// What is counted is what the brokers see.
func TestRequestsAreCounted(t *testing.T) {
	p := newTwins(t, kfake.NumBrokers(1))
	p.topic(p.east, "orders", 1)
	p.write(p.east, "orders", 1, 0, 100)
	all := map[string]*traffic{"east": watch(p.east), "west": watch(p.west)}
	pl := p.pipeline(p.config(DefaultLink("east", "west")), Options{UntilCaughtUp: true})
	defer pl.Close()
	if err := pl.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	pl.WriteMetrics(&out)
	told := make(map[string]int)
	for _, m := range sent.FindAllStringSubmatch(out.String(), -1) {
		n, err := strconv.Atoi(m[3])
		if err != nil {
			t.Fatal(err)
		}
		told[fmt.Sprintf("%s %s", m[1], m[2])] = n
	}
	for side, n := range all {
		for api, a := range n.take() {
			if got := told[side+" "+api]; got != a.requests {
				t.Errorf("%s of %s: %d were counted, the brokers saw %d", api, side, got, a.requests)
			}
			delete(told, side+" "+api)
		}
	}
	if len(told) > 0 {
		t.Errorf("were counted, and no broker saw them: %v", told)
	}
}
