package pipeline

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/kafkatest"
)

// lines keeps a log, for what a failure has to say.
type lines struct {
	mu   sync.Mutex
	said []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, strings.TrimSpace(string(b)))
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, "\n")
}

// exchange is one answer of a job: side, API, and how many of the same were before it.
type exchange struct {
	side  string
	key   int16
	index int
}

// job copies 40 records with both sides tampered with. Only New fails it.
func (p *twins) job(log *lines, most time.Duration, answer func(side string, x kafkatest.Exchange, frame []byte) []byte) error {
	cfg := p.config(DefaultLink("east", "west"))
	for _, side := range []string{"east", "west"} {
		cfg = through(cfg, side, (&kafkatest.Tamper{Answer: func(x kafkatest.Exchange, frame []byte) []byte { return answer(side, x, frame) }}).Dial)
	}
	pl, err := New(cfg, Options{UntilCaughtUp: true}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return err
	}
	defer pl.Close()
	ctx, cancel := context.WithTimeout(p.Context(), most)
	defer cancel()
	err = pl.Run(ctx)
	if n := pl.pool.InUse(); n != 0 {
		p.Errorf("%d bytes of buffers leaked: %v", n, pl.pool.Open())
	}
	return err
}

func newCopy(t *testing.T) *twins {
	p := newTwins(t, kfake.NumBrokers(1))
	p.topic(p.east, "orders", 2)
	p.write(p.east, "orders", 2, 0, 40)
	return p
}

// Each answer of a whole job, to whatever API, is damaged once, in each of the ways that make it malformed. The job does not notice but for
// a line in the log: it asks again, and the copy is the source. What is well-formed after it, and so cannot be told from the truth, may
// end the job or hold it up, but it ends, and nothing panics.
func TestLies(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	counts := make(map[exchange]int)
	var all []exchange
	sizes := make(map[exchange]int)
	count := func(counts map[exchange]int, side string, x kafkatest.Exchange) exchange {
		e := exchange{side: side, key: x.Key}
		e.index = counts[e]
		counts[exchange{side: side, key: x.Key}]++
		return e
	}
	p := newCopy(t)
	var log lines
	if err := p.job(&log, time.Minute, func(side string, x kafkatest.Exchange, frame []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		e := count(counts, side, x)
		sizes[e] = len(frame)
		if e.index < 2 {
			all = append(all, e)
		}
		return frame
	}); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	p.same("orders", "east.orders")

	slots := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for _, e := range all {
		for which := range kafkatest.Lies {
			h := fnv.New32()
			fmt.Fprint(h, e, which)
			seed := int(h.Sum32() % 1021)
			for _, malformed := range []bool{true, false} {
				if e.index > 0 && (!malformed || which%2 == 0) {
					continue // the rest is much the same
				}
				slots <- struct{}{}
				p := newCopy(t)
				wg.Go(func() {
					defer func() { <-slots }()
					p.lied(e, which, seed, malformed, count)
				})
			}
		}
	}
	wg.Wait()
}

// lied runs a job in which answer e is damaged once, at the first byte from seed on where that makes it malformed, or else well-formed.
func (p *twins) lied(e exchange, which, seed int, malformed bool, count func(map[exchange]int, string, kafkatest.Exchange) exchange) {
	var mu sync.Mutex
	var log lines
	told, counts := "", make(map[exchange]int)
	most := time.Minute
	if !malformed {
		most = time.Second
	}
	err := p.job(&log, most, func(side string, x kafkatest.Exchange, frame []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if count(counts, side, x) != e {
			return frame
		}
		for i := range frame {
			at := (seed + i) % len(frame)
			changed := kafkatest.Lie(frame, at, which)
			if _, ok := kafkatest.Answered(x, changed); ok == malformed || bytes.Equal(changed, frame) {
				continue
			}
			told = fmt.Sprintf("%s %s v%d, answer %d of %d bytes, byte %d, lie %d", side, kmsg.NameForKey(x.Key), x.Version, e.index, len(frame), at, which)
			return changed
		}
		return frame
	})
	if !malformed {
		return
	}
	if told == "" {
		p.Errorf("%v was not damaged in way %d", e, which)
	}
	if err != nil {
		p.Errorf("%s: %v\n%s", told, err, &log)
		return
	}
	p.same("orders", "east.orders")
}

// A number that cannot be is an error that is tried again, where it came from a well-formed answer too: it once ended the process, on
// its way into the state.
func TestAbsurdNumbers(t *testing.T) {
	f := func(name, side string, index int, change func(kmsg.Response)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newCopy(t)
			var mu sync.Mutex
			var log lines
			n, told := 0, false
			err := p.job(&log, time.Minute, func(on string, x kafkatest.Exchange, frame []byte) []byte {
				mu.Lock()
				defer mu.Unlock()
				if on != side || kmsg.NameForKey(x.Key) != name {
					return frame
				}
				if n++; n-1 != index {
					return frame
				}
				resp, ok := kafkatest.Answered(x, frame)
				if !ok {
					t.Error("an answer that is none")
				}
				told = true
				change(resp)
				head := 8
				if resp.IsFlexible() {
					head++
				}
				frame = resp.AppendTo(bytes.Clone(frame[:head]))
				binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
				return frame
			})
			if err != nil || !told {
				t.Fatalf("told: %v, %v\n%s", told, err, &log)
			}
			p.same("orders", "east.orders")
		})
	}
	offset := func(to int64) func(kmsg.Response) {
		return func(r kmsg.Response) {
			for _, topic := range r.(*kmsg.ListOffsetsResponse).Topics {
				for i := range topic.Partitions {
					topic.Partitions[i].Offset = to
				}
			}
		}
	}
	f("ListOffsets", "east", 0, offset(-1<<48))  // where the copy begins
	f("ListOffsets", "west", 2, offset(1<<63-2)) // where the target ends
	f("ListOffsets", "west", 0, offset(-1<<63))  // where the state begins
	f("ListOffsets", "west", 1, offset(1<<63-1)) // and ends
	f("InitProducerID", "west", 1, func(r kmsg.Response) { r.(*kmsg.InitProducerIDResponse).ProducerID = -5 })
	for index := range 6 {
		f("Produce", "west", index, func(r kmsg.Response) {
			for _, topic := range r.(*kmsg.ProduceResponse).Topics {
				for i := range topic.Partitions {
					topic.Partitions[i].BaseOffset = 1<<63 - 1
				}
			}
		})
	}
}
