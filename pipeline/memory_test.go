package pipeline

import (
	"context"
	"crypto/rand"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/cluster"
)

// mute is a connection to a peer that accepts, reads nothing more once it is silenced, and never answers.
type mute struct {
	net.Conn
	silent *atomic.Bool
}

func (m mute) Write(b []byte) (int, error) {
	if m.silent.Load() {
		return len(b), nil // into a socket's buffer, as far as the writer can see
	}
	return m.Conn.Write(b)
}

// Memory stays within its limit while a target accepts all and answers nothing, with every lane of a link stuck and all
// partitions coming back at once; and the other link goes on.
func TestMemoryIsBounded(t *testing.T) {
	p := newTwins(t)
	north := p.cluster("north")
	const partitions = 200
	p.topic(p.east, "big", partitions)
	p.topic(p.east, "small", 1)
	cfg := p.config(DefaultLink("east", "west"), DefaultLink("east", "north"))
	cfg.MemoryBytes = MemoryBytesFloor
	cfg.Links[0].Topics.Include, cfg.Links[1].Topics.Include = []string{"big"}, []string{"small"}
	var silent atomic.Bool
	side := cfg.Clusters["west"]
	side.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return mute{c, &silent}, err
	}
	cfg.Clusters["west"] = side
	cfg.Clusters["north"] = cluster.Config{Alias: "north", Bootstrap: north.ListenAddrs()}
	pl, end := p.begin(cfg)
	p.until("all lanes run", func() bool {
		s := pl.Snapshot()
		return s.Links[0].Lanes["running"] == partitions && s.Links[1].Lanes["running"] == 1
	})

	var most atomic.Int64
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for watching.Err() == nil {
			used, _ := pl.Memory()
			most.Store(max(most.Load(), used))
			time.Sleep(100 * time.Microsecond)
		}
	}()

	silent.Store(true)
	cl := p.client(p.east, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	value := make([]byte, 100<<10)
	rand.Read(value)
	const rounds = 3 // 60 MB for 16 MiB of memory
	for i := range partitions * rounds {
		cl.Produce(t.Context(), &kgo.Record{Topic: "big", Partition: int32(i) % partitions, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until("memory is in use", func() bool { return pl.credit.Used() > pl.credit.Limit()/4 })
	for n := 1; n <= 5; n++ {
		p.write(p.east, "small", 1, n, 1)
		p.until("the other link goes on", func() bool { return p.end(north, "east.small") == int64(n) })
	}
	stop()
	<-watched
	if _, limit := pl.Memory(); most.Load() > limit {
		t.Errorf("%d bytes of data were held, %d are allowed", most.Load(), limit)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}
