package pipeline

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/cluster"
)

// gate is a dialer that can be shut: what is open is cut, what is new is refused.
type gate struct {
	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return nil, errors.New("connection refused")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for _, c := range g.conns {
		c.Close()
	}
}

// A target that is gone holds up its own links only, whatever waits for it on the source.
func TestTargetThatIsGoneHoldsUpNoOther(t *testing.T) {
	p := newTwins(t)
	north := p.cluster("north")
	p.topic(p.east, "big", 64)
	p.topic(p.east, "small", 1)
	cfg := p.config(DefaultLink("east", "west"), DefaultLink("east", "north"))
	cfg.MemoryBytes = MemoryBytesFloor
	cfg.Links[0].Topics.Include, cfg.Links[1].Topics.Include = []string{"big"}, []string{"small"}
	var west gate
	side := cfg.Clusters["west"]
	side.Dial = west.dial
	cfg.Clusters["west"] = side
	cfg.Clusters["north"] = cluster.Config{Alias: "north", Bootstrap: north.ListenAddrs()}
	pl, end := p.begin(cfg)
	p.until("all lanes run", func() bool {
		s := pl.Snapshot()
		return s.Links[0].Lanes["running"] == 64 && s.Links[1].Lanes["running"] == 1
	})
	west.close()
	cl := p.client(p.east, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	value := make([]byte, 256<<10)
	rand.Read(value)
	for i := range 64 * 6 {
		cl.Produce(t.Context(), &kgo.Record{Topic: "big", Partition: int32(i) % 64, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until("memory is full", func() bool { return pl.credit.Used() > pl.credit.Limit()/4 })
	for n := 1; n <= 5; n++ {
		p.write(p.east, "small", 1, n, 1)
		p.until("the other link goes on", func() bool { return p.end(north, "east.small") == int64(n) })
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}
