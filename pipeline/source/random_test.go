package source

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/kafkatest"
)

// Whatever lanes and brokers do, a cursor delivers its log without a gap and in order, from where it was last moved to; the taps
// check that. Two or three cursors share each partition. At the end all of it has come, they read together, and all memory is back.
func TestRandomOperations(t *testing.T) {
	for i, opt := range versionsOf(6, 12, 18) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			opts := options()
			opts.QuietAfter, opts.QuietWait, opts.PartitionBytes, opts.FetchBytes = 3*time.Millisecond, 10*time.Millisecond, 3000, 9000
			r := start(t, opts, kfake.NumBrokers(3), opt)
			var lose atomic.Bool
			r.fetched(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
				if req.SessionEpoch <= 0 || !lose.CompareAndSwap(true, false) {
					return nil
				}
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
				return resp
			})
			var ends [8]atomic.Int64
			topic := func(i int) (string, int32) { return []string{"orders", "audit"}[i/4], int32(i % 4) }
			taps := make([]*tap, 20)
			of := func(i int) int { return i % len(ends) } // a tap's partition
			for i := range taps {
				name, p := topic(of(i))
				taps[i] = r.open(t, name, p)
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					i := n * 5 % len(ends)
					name, p := topic(i)
					ends[i].Store(r.write(t, name, p, n%4+1, n%7*300))
				}
			})
			for range 600 {
				n := random.IntN(len(taps))
				x, i := taps[n], of(n)
				r.source.consistent(t)
				switch random.IntN(13) {
				case 0, 1, 2:
					x.cursor.Ask()
				case 3, 4:
					x.cursor.Hold()
				case 5, 6:
					x.moveTo(random.Int64N(ends[i].Load() + 1))
				case 7:
					name, p := topic(i)
					if err := r.fake.MoveTopicPartition(name, p, int32(random.IntN(3))); err != nil {
						t.Error(err)
					}
				case 8:
					if random.IntN(4) == 0 {
						r.proxy.CutAll(kafkatest.Cut(random.IntN(2)))
					}
				case 9:
					lose.Store(true)
				case 10: // another lane takes over
					x.close()
					name, p := topic(i)
					taps[n] = r.open(t, name, p)
				case 12:
					x.busy.Store(!x.busy.Load())
				case 11: // let things happen
					x.cursor.Ask()
					before := r.source.fetches.Load()
					eventually(t, "a fetch", func() bool { return r.source.fetches.Load() > before+3 })
				}
			}
			close(stop)
			wg.Wait()
			for _, x := range taps {
				x.cursor.Ask()
			}
			for i, x := range taps {
				x.reach(t, ends[of(i)].Load())
				eventually(t, "one feed", func() bool { return feeds(x) == 1 })
				if x.codes != nil {
					t.Errorf("codes %v", x.codes)
				}
			}
		})
	}
}
