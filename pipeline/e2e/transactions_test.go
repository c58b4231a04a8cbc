package e2e

import (
	"fmt"
	"testing"
	"time"

	"kferry/pipeline"
	"kferry/pipeline/kafkatest"
)

// script is a run of producers over one partition, each a Java producer of its own, and what of it a reader of committed
// records has to see.
type script struct {
	t       *testing.T
	topic   string
	writers map[string]*kafkatest.Writer
	plain   *kafkatest.Writer
	open    map[string][]kafkatest.Record // by producer: of the transaction under way
	all     []kafkatest.Record            // in the log's order
	dropped map[string]bool               // keys of aborted records
	at      int64                         // the next timestamp
}

// newScript starts the producers; the first is not transactional.
func newScript(t *testing.T, k *kafkatest.Kafka, topic string, producers ...string) *script {
	t.Helper()
	s := &script{t: t, topic: topic, writers: make(map[string]*kafkatest.Writer), open: make(map[string][]kafkatest.Record),
		dropped: make(map[string]bool), at: time.Now().Add(-time.Hour).UnixMilli()}
	begin := func(props map[string]string) *kafkatest.Writer {
		w, err := kafkatest.StartWriter(k, props)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close() })
		return w
	}
	s.plain = begin(nil)
	for _, p := range producers {
		s.writers[p] = begin(map[string]string{"transactional.id": topic + "-" + p, "compression.type": "lz4"})
	}
	return s
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// write appends a batch of so many records in the producer's transaction, which it begins where there is none; without a
// producer's name, outside of all transactions.
func (s *script) write(producer string, count int) {
	s.t.Helper()
	w := s.writers[producer]
	if producer == "" {
		w = s.plain
	} else if s.open[producer] == nil {
		s.must(w.Begin())
	}
	for range count {
		r := kafkatest.Record{Topic: s.topic, Key: fmt.Appendf(nil, "%d-%s", len(s.all), producer), Value: []byte("value"), Timestamp: s.at}
		s.at += 10
		s.must(w.Write(r))
		s.all = append(s.all, r)
		if producer != "" {
			s.open[producer] = append(s.open[producer], r)
		}
	}
	s.must(w.Flush())
}

func (s *script) commit(producer string) {
	s.t.Helper()
	s.must(s.writers[producer].Commit())
	delete(s.open, producer)
}

func (s *script) abort(producer string) {
	s.t.Helper()
	s.must(s.writers[producer].Abort())
	for _, r := range s.open[producer] {
		s.dropped[string(r.Key)] = true
	}
	delete(s.open, producer)
}

// committed is what a reader sees now: up to the first record of an open transaction.
func (s *script) committed() (seen []kafkatest.Record) {
	open := make(map[string]bool)
	for _, records := range s.open {
		open[string(records[0].Key)] = true
	}
	for _, r := range s.all {
		if open[string(r.Key)] {
			break
		}
		if !s.dropped[string(r.Key)] {
			seen = append(seen, r)
		}
	}
	return seen
}

// holds checks that a topic of one partition holds these records and no others, for a reader that sees all that is in the log.
func holds(t *testing.T, k *kafkatest.Kafka, topic string, want []kafkatest.Record) {
	t.Helper()
	got, err := kafkatest.ReadJavaWith(t.Context(), k, map[string]string{"isolation.level": "read_uncommitted"}, topic)
	if err != nil {
		t.Fatal(err)
	}
	if d := kafkatest.Diff(want, got); d != "" {
		t.Fatalf("%s: %s", topic, d)
	}
	for _, h := range heads(t, k, topic, 0) {
		if h.Attributes&kafkatest.Transactional != 0 {
			t.Fatalf("%s/0 at %d: a transactional batch on the target", topic, h.Offset)
		}
	}
}

// caughtUp runs a job that has to reach the end of what its isolation may read.
func caughtUp(t *testing.T, cfg pipeline.Config) pipeline.Status {
	t.Helper()
	s, err := try(t, cfg)
	if err != nil {
		t.Fatalf("%v\n%+v", err, s)
	}
	for _, l := range s.Links {
		if l.LagRecords != 0 {
			t.Fatalf("link %s ends with a lag of %d records\n%+v", l.Name, l.LagRecords, s)
		}
	}
	return s
}

// TestTransactions interleaves commits and aborts of several producers: only what was committed arrives, in order, and a
// hanging transaction holds all behind it until it ends.
func TestTransactions(t *testing.T) {
	from, to := east(t), west(t)
	const topic = "transactions"
	create(t, from, topic, 1)
	s := newScript(t, from, topic, "a", "b", "c")
	committed := config(from, to, "committed", topic)
	all := config(from, to, "all", topic)
	all.Links[0].Isolation = pipeline.ReadUncommitted
	committedCopy, allCopy := alias(committed)+"."+topic, alias(all)+"."+topic

	s.write("", 3)
	for range 3 {
		s.write("a", 2)
		s.write("b", 3)
		s.write("", 1)
		s.abort("a") // a aborts, commits and aborts again while b and c are under way
		s.write("c", 1)
		s.write("a", 2)
		s.commit("a")
		s.write("b", 1)
		s.write("a", 4)
		s.write("c", 2)
		s.commit("b")
		s.abort("a")
		s.write("b", 2)
		s.abort("b")
		s.commit("c")
	}
	// The log ends with the marker of an aborted transaction.
	s.write("b", 2)
	s.abort("b")
	caughtUp(t, committed)
	holds(t, to, committedCopy, s.committed())

	// A transaction that hangs: others commit behind it, and nothing of that may be seen yet.
	s.write("", 2)
	s.write("c", 2)
	s.write("", 2)
	s.write("a", 2)
	s.commit("a")
	got := caughtUp(t, committed)
	holds(t, to, committedCopy, s.committed())
	if lane := got.Links[0].Partitions[0]; lane.SrcEnd >= ends(t, from, topic)[0] {
		t.Fatalf("the stable end is %d, want it before the open transaction", lane.SrcEnd)
	}
	if len(s.committed()) == len(s.all)-len(s.dropped) {
		t.Fatal("nothing is held back, so this shows nothing")
	}
	caughtUp(t, all)
	holds(t, to, allCopy, s.all)

	s.commit("c")
	caughtUp(t, committed)
	holds(t, to, committedCopy, s.committed())
	if want := len(s.all) - len(s.dropped); len(s.committed()) != want {
		t.Fatalf("%d records are committed, want %d", len(s.committed()), want)
	}

	// A running link follows a transaction from its begin to its end.
	l := start(t, committed)
	s.write("a", 2)
	s.write("b", 2)
	s.write("", 1)
	s.abort("a")
	s.commit("b")
	admin := adminOf(t, to)
	waitWritten(t, admin, committedCopy, int64(len(s.committed())))
	l.stop()
	holds(t, to, committedCopy, s.committed())
}

// TestStartInsideTransaction begins behind the first records of transactions that end later: the aborted one's rest is
// dropped, though its begin was never read, and the committed one's rest arrives.
func TestStartInsideTransaction(t *testing.T) {
	from, to := east(t), west(t)
	const topic = "inside"
	create(t, from, topic, 1)
	s := newScript(t, from, topic, "a", "b")
	s.write("a", 2)
	s.write("b", 2)
	s.write("", 1)
	first, at := len(s.all), s.at
	s.write("", 1)
	s.write("a", 2)
	s.write("b", 2)
	s.abort("a")
	s.write("a", 1)
	s.commit("b")
	s.commit("a")
	cfg := config(from, to, "inside", topic)
	cfg.Links[0].Start = pipeline.Start{Kind: pipeline.StartTime, Time: time.UnixMilli(at)}
	caughtUp(t, cfg)
	var want []kafkatest.Record
	for _, r := range s.all[first:] {
		if !s.dropped[string(r.Key)] {
			want = append(want, r)
		}
	}
	holds(t, to, alias(cfg)+"."+topic, want)
}

// TestAbortedStretch passes more aborted records than many fetches hold, without writing one of them.
func TestAbortedStretch(t *testing.T) {
	from, to := east(t), west(t)
	const topic = "stretch"
	create(t, from, topic, 1)
	s := newScript(t, from, topic, "a")
	for range 10 {
		s.write("a", 2000)
		s.abort("a")
	}
	s.write("a", 5)
	s.commit("a")
	s.write("a", 100)
	s.abort("a")
	cfg := config(from, to, "stretch", topic)
	got := caughtUp(t, cfg)
	holds(t, to, alias(cfg)+"."+topic, s.committed())
	if lane := got.Links[0].Partitions[0]; lane.Records != 5 || lane.SrcOffset != ends(t, from, topic)[0] {
		t.Fatalf("%d records copied, position %d; want 5 and the log's end %d", lane.Records, lane.SrcOffset, ends(t, from, topic)[0])
	}
}
