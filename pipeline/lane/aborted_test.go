package lane

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"kferry/batch"
)

// kept gives the base offsets of the data batches of one response that f lets through.
func kept(t interface{ Fatalf(string, ...any) }, f *abortedFilter, list []AbortedTxn, response []kmsg.RecordBatch) []int64 {
	pool := batch.NewPool(0)
	var wires [][]byte
	for _, b := range response {
		wires = append(wires, sealed(b))
	}
	var got []int64
	f.reset(list)
	for _, b := range fetched(t, pool, wires...) {
		if drop := f.drops(b); !drop && !b.IsControl() {
			got = append(got, b.BaseOffset())
		} else if drop && b.IsControl() {
			t.Fatalf("the control batch at %d is called aborted data", b.BaseOffset())
		}
		b.Release()
	}
	return got
}

func TestAbortedFilter(t *testing.T) {
	data := func(base, pid int64) kmsg.RecordBatch { return inTxn(plain(base, 1), pid, 0) }
	end := func(base, pid int64, kind batch.Marker) kmsg.RecordBatch { return marker(base, pid, 0, kind) }
	for name, c := range map[string]struct {
		list     []AbortedTxn
		response []kmsg.RecordBatch
		want     []int64
	}{
		"nothing aborted": {
			response: []kmsg.RecordBatch{data(0, 1), end(1, 1, batch.Commit), plain(2, 1)},
			want:     []int64{0, 2},
		},
		"abort, commit, abort of one producer, the list unsorted": {
			list: []AbortedTxn{{1, 4}, {1, 0}},
			response: []kmsg.RecordBatch{data(0, 1), end(1, 1, batch.Abort), data(2, 1), end(3, 1, batch.Commit),
				data(4, 1), end(5, 1, batch.Abort), data(6, 1), end(7, 1, batch.Commit)},
			want: []int64{2, 6},
		},
		"two producers in each other": {
			list: []AbortedTxn{{2, 1}},
			response: []kmsg.RecordBatch{data(0, 1), data(1, 2), data(2, 1), end(3, 1, batch.Commit), data(4, 2),
				end(5, 2, batch.Abort), data(6, 2), end(7, 2, batch.Commit)},
			want: []int64{0, 2, 6},
		},
		"the fetch begins inside": {
			list:     []AbortedTxn{{1, 0}},
			response: []kmsg.RecordBatch{data(7, 1), end(8, 1, batch.Abort), data(9, 1)},
			want:     []int64{9},
		},
		"the marker comes a response later": {
			list:     []AbortedTxn{{1, 0}},
			response: []kmsg.RecordBatch{data(7, 1), plain(8, 1)},
			want:     []int64{8},
		},
		"not transactional, by the same producer": {
			list:     []AbortedTxn{{-1, 0}, {1, 0}},
			response: []kmsg.RecordBatch{data(0, 1), plain(1, 1), end(2, 1, batch.Abort)},
			want:     []int64{1},
		},
		"transactions v2: the marker carries the next epoch": {
			list: []AbortedTxn{{1, 0}},
			response: []kmsg.RecordBatch{inTxn(plain(0, 1), 1, 5), marker(1, 1, 6, batch.Abort), inTxn(plain(2, 1), 1, 6),
				marker(3, 1, 7, batch.Commit)},
			want: []int64{2},
		},
		"the aborted one begins inside a batch": {
			list:     []AbortedTxn{{1, 2}},
			response: []kmsg.RecordBatch{inTxn(plain(0, 5), 1, 0), end(5, 1, batch.Abort)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f abortedFilter
			if diff := cmp.Diff(c.want, kept(t, &f, c.list, c.response)); diff != "" {
				t.Errorf("batches let through (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAbortedFilterOracle compares the filter with two others on random logs read in random pieces: with how each
// transaction ended, and with Kafka's algorithm as its consumer has it (CompletedFetch.java, a priority queue and a set).
func TestAbortedFilterOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		type txn struct {
			pid, first, end int64 // end is the marker's offset
			aborted         bool
		}
		var log []kmsg.RecordBatch
		var txns []*txn
		open, of, epochs := map[int64]*txn{}, map[int64]*txn{}, map[int64]int16{}
		v2 := r.IntN(2) == 0
		base := int64(0)
		for range 1 + r.IntN(60) {
			pid := 1 + r.Int64N(4)
			count := 1 + r.Int32N(4)
			x := open[pid]
			switch kind := r.IntN(8); {
			case kind == 0:
				log = append(log, plain(base, count))
			case kind < 4 || x == nil:
				if x == nil {
					x = &txn{pid: pid, first: base, end: math.MaxInt64}
					open[pid] = x
					txns = append(txns, x)
				}
				log = append(log, inTxn(plain(base, count), pid, epochs[pid]))
				of[base] = x
			default:
				count = 1
				x.end, x.aborted = base, r.IntN(2) == 0
				if v2 {
					epochs[pid]++
				}
				kind := batch.Commit
				if x.aborted {
					kind = batch.Abort
				}
				log = append(log, marker(base, pid, epochs[pid], kind))
				delete(open, pid)
			}
			base += int64(count)
		}
		stable := base
		for _, x := range open {
			stable = min(stable, x.first)
		}
		log = slices.DeleteFunc(log, func(b kmsg.RecordBatch) bool { return b.FirstOffset >= stable })
		var f abortedFilter
		for at := 0; at < len(log); {
			n := 1 + r.IntN(len(log)-at)
			response := log[at : at+n]
			at += n
			from, last := response[0].FirstOffset, response[n-1].FirstOffset
			// What overlaps the range, and some of what comes later: a broker looks up its index by file positions.
			var list []AbortedTxn
			for _, x := range txns {
				if x.aborted && x.end >= from && (x.first <= last || r.IntN(2) == 0) {
					list = append(list, AbortedTxn{x.pid, x.first})
				}
			}
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			var ended, kafka []int64
			todo := slices.SortedFunc(slices.Values(list), func(a, b AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
			inside := map[int64]bool{}
			for _, b := range response {
				for len(todo) > 0 && todo[0].FirstOffset <= b.FirstOffset+int64(b.LastOffsetDelta) {
					inside[todo[0].ProducerID] = true
					todo = todo[1:]
				}
				if b.Attributes&control != 0 {
					if b.Records[len(b.Records)-9] == byte(batch.Abort) { // the key's last byte; value length, 6 bytes, header count follow
						delete(inside, b.ProducerID)
					}
					continue
				}
				if x := of[b.FirstOffset]; x == nil || !x.aborted {
					ended = append(ended, b.FirstOffset)
				}
				if b.Attributes&transactional == 0 || !inside[b.ProducerID] {
					kafka = append(kafka, b.FirstOffset)
				}
			}
			got := kept(t, &f, list, response)
			if diff := cmp.Diff(kafka, got); diff != "" {
				t.Fatalf("let through of %d to %d with %v (-Kafka's consumer +got):\n%s", from, last, list, diff)
			}
			if diff := cmp.Diff(ended, got); diff != "" {
				t.Fatalf("let through of %d to %d with %v (-how they ended +got):\n%s", from, last, list, diff)
			}
		}
	})
}
