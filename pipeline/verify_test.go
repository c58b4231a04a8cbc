package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/batch"
)

// verify compares the one link of cfg.
func (p *twins) verify(cfg Config, opts VerifyOptions) VerifiedLink {
	p.Helper()
	pl := p.pipeline(cfg, Options{})
	defer pl.Close()
	ctx, cancel := context.WithTimeout(p.Context(), 60*time.Second)
	defer cancel()
	report, err := pl.Verify(ctx, opts)
	if err != nil {
		p.Fatal(err)
	}
	if len(report.Links) != 1 {
		p.Fatalf("got %d links, want 1", len(report.Links))
	}
	return report.Links[0]
}

// wantEqual fails unless the link was found equal, records and all.
func (p *twins) wantEqual(v VerifiedLink, records int64) {
	p.Helper()
	if len(v.Differences) > 0 || len(v.Uncompared) > 0 || v.Records != records {
		p.Fatalf("got %d records, differences %v, uncompared %v; want %d records and nothing else", v.Records, v.Differences, v.Uncompared, records)
	}
}

// wantDifferences compares the differences as an operator sees them.
func (p *twins) wantDifferences(v VerifiedLink, want ...string) {
	p.Helper()
	got := []string{}
	for _, d := range v.Differences {
		got = append(got, d.String())
	}
	if d := cmp.Diff(want, got); d != "" || len(v.Uncompared) > 0 {
		p.Fatalf("uncompared %v, differences (want, got):\n%s", v.Uncompared, d)
	}
}

// batches writes n batches of 10 records each to partition 0, and gives their base offsets.
func (p *twins) batches(c *kfake.Cluster, topic string, n int, opts ...kgo.Opt) (bases []int64) {
	p.Helper()
	cl := p.client(c, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	for i := range n {
		var rs []*kgo.Record
		for j := range 10 {
			rs = append(rs, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", j), Value: fmt.Appendf(nil, "batch %d record %d", i, j),
				Headers: []kgo.RecordHeader{{Key: "n", Value: []byte{byte(i)}}}, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(10*i+j))})
		}
		produced := cl.ProduceSync(p.Context(), rs...)
		if err := produced.FirstErr(); err != nil {
			p.Fatal(err)
		}
		if first, last := produced[0].Record.Offset, produced[9].Record.Offset; last != first+9 {
			p.Fatalf("batch %d lies at offsets %d to %d", i, first, last)
		}
		bases = append(bases, produced[0].Record.Offset)
	}
	return bases
}

// copied makes a link whose topic "t" has one partition with n batches, and runs it.
func copied(t *testing.T, n int) (*twins, Config) {
	p := newTwins(t)
	p.topic(p.east, "t", 1)
	p.batches(p.east, "t", n)
	cfg := p.config(DefaultLink("east", "west"))
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	return p, cfg
}

// cut moves a log's start.
func (p *twins) cut(c *kfake.Cluster, topic string, to int64) {
	p.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, to, -1)
	resp, err := kadm.NewClient(p.client(c)).DeleteRecords(p.Context(), offsets)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		p.Fatal(err)
	}
}

func TestVerifyFindsACopyEqual(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 7)
	p.topic(p.east, "empty", 2)
	p.write(p.east, "orders", 7, 0, 5_000)
	cfg := p.config(DefaultLink("east", "west"))
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	var done, total int64
	v := p.verify(cfg, VerifyOptions{Progress: func(d, n int64) { done, total = d, n }})
	p.wantEqual(v, 5_000)
	if v.Partitions != 9 || v.Stateless || v.ByRecord != 0 || v.Batches == 0 {
		t.Errorf("got %+v", v)
	}
	if done != 5_000 || total != 5_000 {
		t.Errorf("progress ended at %d of %d, want 5000", done, total)
	}
	p.write(p.east, "orders", 7, 5_000, 100) // not yet copied, so not yet missing
	p.wantEqual(p.verify(cfg, VerifyOptions{Headers: true, Workers: 1}), 5_000)
}

func TestVerifyDropsWhatTheLinkDrops(t *testing.T) {
	for _, isolation := range []Isolation{ReadCommitted, ReadUncommitted} {
		t.Run(string(isolation), func(t *testing.T) {
			p := newTwins(t)
			p.topic(p.east, "t", 1)
			cl := p.client(p.east, kgo.TransactionalID("x"), kgo.DefaultProduceTopic("t"))
			for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort, kgo.TryAbort, kgo.TryCommit} {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := cl.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				if err := cl.EndTransaction(t.Context(), end); err != nil {
					t.Fatal(err)
				}
			}
			l := DefaultLink("east", "west")
			l.Isolation = isolation
			cfg := p.config(l)
			if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
				t.Fatal(err)
			}
			want := int64(9)
			if isolation == ReadUncommitted {
				want = 18
			}
			p.wantEqual(p.verify(cfg, VerifyOptions{}), want)
		})
	}
}

func TestVerifyNamesForeignRecords(t *testing.T) {
	p, cfg := copied(t, 3)
	cl := p.client(p.west, kgo.DisableIdempotentWrite())
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "east.t", Value: []byte("mine")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	p.wantDifferences(p.verify(cfg, VerifyOptions{}),
		"t/0 to east.t, target offset 30: foreign: 1 records of another writer (producer id -1): where others may write, set onto_existing: true")

	cfg.Links[0].OntoExisting = true
	p.batches(p.east, "t", 2)
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	v := p.verify(cfg, VerifyOptions{})
	p.wantEqual(v, 50)
	if v.Foreign != 1 {
		t.Errorf("got %d foreign records, want 1", v.Foreign)
	}
}

func TestVerifyNamesMissingRecords(t *testing.T) {
	f := forge(t, 5)
	for i, b := range f.source {
		if i != 2 {
			f.write(b)
		}
	}
	f.store(true)
	f.wantDifferences(f.verify(f.cfg, VerifyOptions{}),
		"t/0 to east.t, source offset 20, target offset 20: missing: the source's offsets 20 to 29 are not on the target")
}

func TestVerifyNamesAMissingEnd(t *testing.T) {
	f := forge(t, 5)
	for _, b := range f.source[:3] {
		f.write(b)
	}
	f.store(true)
	f.wantDifferences(f.verify(f.cfg, VerifyOptions{}),
		"t/0 to east.t, source offset 30, target offset 30: missing: the target ends, the source's offsets 30 to 49 are not there")
}

func TestVerifyNamesAChangedRecord(t *testing.T) {
	none := kgo.ProducerBatchCompression(kgo.NoCompression())
	for _, headers := range []bool{false, true} {
		f := forge(t, 3, none)
		f.write(f.source[0])
		f.write(f.changed(f.source[1], func(raw []byte) {
			i := strings.Index(string(raw), "batch 1 record 4")
			raw[i+2] = 'T'
		}))
		f.write(f.source[2])
		f.store(true)
		f.wantDifferences(f.verify(f.cfg, VerifyOptions{Headers: headers}),
			"t/0 to east.t, source offset 14, target offset 14: changed: the value has 16 bytes on the source, 16 bytes on the target, and differs from byte 2 on")
	}
}

func TestVerifyNamesAChangedTime(t *testing.T) {
	f := forge(t, 2)
	f.write(f.source[0])
	base, most := f.source[1].BaseTimestamp(), f.source[1].MaxTimestamp()
	f.write(f.changed(f.source[1], func(raw []byte) { setTimes(raw, base-5, most-5) }))
	f.store(true)
	v := f.verify(f.cfg, VerifyOptions{})
	if len(v.Differences) != 1 || v.Differences[0].Kind != DiffChanged || v.Differences[0].SrcOffset != 10 ||
		!strings.HasPrefix(v.Differences[0].Text, "the timestamp is ") {
		t.Errorf("got %v", v.Differences)
	}
}

func TestVerifyNamesDoubledRecords(t *testing.T) {
	f := forge(t, 6)
	for _, b := range f.source[:4] {
		f.write(b)
	}
	f.epoch, f.seq = 1, 0 // an end that was not clean, back to the checkpoint at 20
	for _, b := range f.source[2:] {
		f.write(b)
	}
	f.store(true)
	v := f.verify(f.cfg, VerifyOptions{})
	f.wantDifferences(v, "t/0 to east.t, source offset 20, target offset 40: doubled: records doubled from offset 20: "+
		"20 records in all stand on the target once more, which an end that was not clean explains")
	if v.Doubled != 20 || v.Records != 60 || v.Batches != 6 {
		t.Errorf("got %d doubled, %d records, %d batches; want 20, 60, 6", v.Doubled, v.Records, v.Batches)
	}
}

func TestVerifyCountsWhatIsDoubledTwice(t *testing.T) {
	f := forge(t, 6)
	for epoch, batches := range [][]batch.Batch{f.source[:4], f.source[2:4], f.source[2:]} {
		f.epoch, f.seq = int16(epoch), 0
		for _, b := range batches {
			f.write(b)
		}
	}
	f.store(true)
	v := f.verify(f.cfg, VerifyOptions{})
	f.wantDifferences(v, "t/0 to east.t, source offset 20, target offset 40: doubled: records doubled from offset 20: "+
		"40 records in all stand on the target once more, which an end that was not clean explains")
	if v.Doubled != 40 || v.Records != 60 || v.Batches != 6 {
		t.Errorf("got %d doubled, %d records, %d batches; want 40, 60, 6", v.Doubled, v.Records, v.Batches)
	}
}

func TestVerifyNamesWhatIsTooMuch(t *testing.T) {
	f := forge(t, 4)
	for _, b := range f.source {
		f.write(b)
	}
	f.source = f.source[:3] // the state knows of three
	f.store(true)
	f.wantDifferences(f.verify(f.cfg, VerifyOptions{}),
		"t/0 to east.t, source offset 30, target offset 30: extra: the target goes on behind the last copied record, to offset 39")
}

func TestVerifyLeavesWhatIsInFlight(t *testing.T) {
	f := forge(t, 4)
	for _, b := range f.source[:3] {
		f.write(b)
	}
	end := f.end
	f.write(f.source[3]) // sent, and not yet in the checkpoint
	f.end, f.source = end, f.source[:3]
	f.store(false)
	f.wantEqual(f.verify(f.cfg, VerifyOptions{}), 30)
}

func TestVerifyComparesRecordsAcrossBounds(t *testing.T) {
	f := forge(t, 4, kgo.ProducerBatchCompression(kgo.NoCompression()))
	// What no kferry wrote is compared by records: another client writes the same in batches of 7.
	src := f.client(f.east, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	dst := f.client(f.west, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()))
	var all []*kgo.Record
	for len(all) < 40 {
		all = append(all, src.PollFetches(t.Context()).Records()...)
	}
	for chunk := range slices.Chunk(all, 7) {
		var out []*kgo.Record
		for _, r := range chunk {
			out = append(out, &kgo.Record{Topic: "east.t", Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
		}
		if err := dst.ProduceSync(t.Context(), out...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	v := f.verify(f.cfg, VerifyOptions{})
	f.wantEqual(v, 40)
	if !v.Stateless || v.ByRecord != 40 || v.Batches != 0 {
		t.Errorf("got %+v", v)
	}
	if err := dst.ProduceSync(t.Context(), &kgo.Record{Topic: "east.t"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	f.wantDifferences(f.verify(f.cfg, VerifyOptions{}),
		"t/0 to east.t, source offset 40, target offset 40: extra: the target goes on behind the last copied record, to offset 40")
}

func TestVerifyBehindRetention(t *testing.T) {
	skipped := func(v VerifiedLink) (s []string) {
		for _, x := range v.Skipped {
			s = append(s, x.String())
		}
		return s
	}
	const srcGone = "t/0: the source's retention has removed offsets 0 to 24 of what was copied"
	const dstGone = "t/0: the target's retention has removed offsets 0 to 39 of the copy"
	f := func(name string, src, dst, records int64, want ...string) {
		t.Run(name, func(t *testing.T) {
			p, cfg := copied(t, 8)
			if src > 0 {
				p.cut(p.east, "t", src)
			}
			if dst > 0 {
				p.cut(p.west, "east.t", dst)
			}
			v := p.verify(cfg, VerifyOptions{})
			p.wantEqual(v, records)
			if d := cmp.Diff(want, skipped(v)); d != "" {
				t.Error(d)
			}
		})
	}
	f("source", 25, 0, 60, srcGone)
	f("target", 0, 40, 40, dstGone)
	f("both", 25, 40, 40, srcGone, dstGone)
	f("all", 80, 0, 0, "t/0: the source's retention has removed offsets 0 to 79 of what was copied")
}

// A target that compresses again keeps neither bytes nor checksums: where retention has moved a start, the records tell.
func TestVerifyBehindRetentionByRecords(t *testing.T) {
	f := forge(t, 6, kgo.ProducerBatchCompression(kgo.NoCompression()))
	f.cfg.Links[0].Topics.Include = []string{"t"}
	f.topic(f.east, "again", 1)
	f.batches(f.east, "again", 6, kgo.ProducerBatchCompression(kgo.GzipCompression()))
	for _, b := range f.read("again", 6) {
		f.write(b)
	}
	f.store(true)
	f.cut(f.east, "t", 25)
	v := f.verify(f.cfg, VerifyOptions{})
	f.wantEqual(v, 40)
	if v.ByRecord != 40 || len(v.Skipped) != 1 {
		t.Errorf("got %+v", v)
	}
	f.cut(f.west, "east.t", 35)
	f.wantEqual(f.verify(f.cfg, VerifyOptions{}), 30)
}

func TestVerifySaysWhatItCouldNotCompare(t *testing.T) {
	p, cfg := copied(t, 3)
	p.topic(p.east, "later", 1)
	v := p.verify(cfg, VerifyOptions{})
	if d := cmp.Diff([]Span{{"later", -1, "topic east.later does not exist on west"}}, v.Uncompared); d != "" {
		t.Error(d)
	}
	if v.Records != 30 {
		t.Errorf("got %d records, want 30", v.Records)
	}
	p.topic(p.west, "east.later", 1)
	v = p.verify(cfg, VerifyOptions{})
	if d := cmp.Diff([]Span{{"later", 0, "not started: the state has no start of it yet"}}, v.Uncompared); d != "" {
		t.Error(d)
	}
	cfg.Links[0].Topics.Include = []string{"later"}
	v = p.verify(cfg, VerifyOptions{})
	if d := cmp.Diff([]Span{{"t", -1, "was copied before, and is not on the source or not in the link's filter any more"}}, v.Skipped); d != "" {
		t.Error(d)
	}
	pl := p.pipeline(cfg, Options{})
	defer pl.Close()
	if _, err := pl.Verify(t.Context(), VerifyOptions{Links: []string{"nope"}}); err == nil || err.Error() != `refused: there is no link "nope" in the configuration` {
		t.Errorf("got %v", err)
	}
	p.west.Close()
	v = p.verify(cfg, VerifyOptions{})
	if len(v.Uncompared) != 1 || v.Uncompared[0].Topic != "" || !strings.Contains(v.Uncompared[0].Text, "connection refused") {
		t.Errorf("got %v", v.Uncompared)
	}
}
