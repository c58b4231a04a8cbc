package e2e

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

// TestHoles copies batches that lost records to compaction: dense, and equal record for record.
func TestHoles(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "holes", 1, "cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.01", "max.compaction.lag.ms", "1000")
	cl := client(t, from, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	at := time.Now().Add(-time.Hour)
	put := func(partition int32, keys ...string) {
		var records []*kgo.Record
		for _, key := range keys {
			at = at.Add(time.Second)
			records = append(records, &kgo.Record{Topic: "holes", Partition: partition, Key: []byte(key), Value: []byte("value"), Timestamp: at})
		}
		if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	put(0, "1", "2", "3", "1", "2", "4")
	at = at.Add(time.Minute)
	put(0, "5") // a record of a later time rolls the segment, so that the cleaner may touch it
	waitFor(t, "the cleaner to make a hole", func() bool {
		for _, b := range heads(t, from, "holes", 0) {
			if b.Holed() {
				return true
			}
		}
		return false
	})
	create(t, to, "holessrc.holes", 1) // not compacted: its own cleaner would make holes too
	l := start(t, config(from, to, "holes", "holes"))
	end := ends(t, from, "holes")[0]
	waitFor(t, "the holed partition", func() bool { return l.lane("holes", 0).SrcOffset == end })
	if !strings.Contains(l.metrics(), `kferry_batches_recoded_total{link="holessrc.holesdst",topic="holes",partition="0",reason="holes"}`) {
		t.Errorf("the metrics do not count what was re-encoded:\n%s", l.metrics())
	}
	l.stop()
	want, err := kafkatest.ReadJava(t.Context(), from, "holes")
	if err != nil {
		t.Fatal(err)
	}
	got, err := kafkatest.ReadJava(t.Context(), to, "holessrc.holes")
	if err != nil {
		t.Fatal(err)
	}
	if d := kafkatest.Diff(want, got); d != "" || len(want) == 0 {
		t.Errorf("%d records; %s", len(want), d)
	}
	for _, h := range heads(t, to, "holessrc.holes", 0) {
		if h.Holed() {
			t.Errorf("the target's batch at %d has a hole", h.Offset)
		}
	}
}

// TestTooLarge parks on a batch that the target's topic does not take, and goes on by itself once it does.
func TestTooLarge(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "large", 1, "max.message.bytes", "2000000")
	create(t, to, "largesrc.large", 1, "max.message.bytes", "100000")
	cl := client(t, from, kgo.ProducerBatchMaxBytes(1_500_000))
	value := make([]byte, 1_000_000)
	rand.Read(value)
	for i, size := range []int{10, len(value), 10} {
		r := &kgo.Record{Topic: "large", Key: fmt.Appendf(nil, "%d", i), Value: value[:size]}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	l := start(t, config(from, to, "large", "large"))
	if s := l.parked("large", 0, "too-large"); s.SrcOffset != 1 || !strings.Contains(s.Cure, "max.message.bytes") {
		t.Errorf("parked at %d with the cure %q", s.SrcOffset, s.Cure)
	}
	set(t, to, "largesrc.large", "max.message.bytes", "2000000")
	waitWritten(t, adminOf(t, to), "largesrc.large", 3)
	l.stop()
	exactly(t, to, "largesrc.large", 1, 0, 3)
	sameBytes(t, from, "large", to, "largesrc.large", 1)
}

// TestRetentionOverrun goes on at the log's start when retention was faster than we, and counts what is gone.
func TestRetentionOverrun(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "overrun", 1)
	n := newNumbers(t, from, "overrun", 1)
	n.write(20)
	cfg := config(from, to, "overrun", "overrun")
	caughtUp(t, cfg)
	n.write(25)
	n.write(5) // the log start is then a batch's
	until := make(kadm.Offsets)
	until.AddOffset("overrun", 0, 45, -1)
	if _, err := adminOf(t, from).DeleteRecords(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	l := start(t, cfg)
	n.write(5)
	admin := adminOf(t, to)
	waitWritten(t, admin, "overrunsrc.overrun", 20+10)
	if want := `kferry_losses_records_total{link="overrunsrc.overrundst",topic="overrun",partition="0",kind="retention"} 25`; !strings.Contains(l.metrics(), want) {
		t.Errorf("the metrics lack %s:\n%s", want, l.metrics())
	}
	if s := l.lane("overrun", 0); s.SkippedLost != 25 {
		t.Errorf("status tells of %d lost offsets, want 25", s.SkippedLost)
	}
	l.stop()
	want := "["
	for i := range 55 {
		if i < 20 || i >= 45 {
			want += fmt.Sprintf("%d ", i)
		}
	}
	if got := fmt.Sprint(counted(t, to, "overrunsrc.overrun")[0]); got != strings.TrimSpace(want)+"]" {
		t.Fatalf("the target holds %s, want %s]", got, want)
	}
}

// TestTargetRebuilt parks where the target's topic is not the one that was written to: while we look, and while we do not.
func TestTargetRebuilt(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "rebuilt", 1)
	n := newNumbers(t, from, "rebuilt", 1)
	n.write(20)
	cfg := config(from, to, "rebuilt", "rebuilt")
	caughtUp(t, cfg)
	remake(t, to, "rebuiltsrc.rebuilt", 1)
	n.write(1)
	stuckAs(t, cfg, "rebuiltsrc.rebuiltdst rebuilt/0", "target-lost")

	create(t, from, "rebuilt2", 1)
	n = newNumbers(t, from, "rebuilt2", 1)
	n.write(20)
	l := start(t, config(from, to, "rebuiltlive", "rebuilt2"))
	waitWritten(t, adminOf(t, to), "rebuiltlivesrc.rebuilt2", 20)
	remake(t, to, "rebuiltlivesrc.rebuilt2", 1)
	n.write(5)
	l.parked("rebuilt2", 0, "target-lost")
	l.stop()
	if got := ends(t, to, "rebuiltlivesrc.rebuilt2")[0]; got != 0 {
		t.Fatalf("%d records were written to a topic that is another one", got)
	}
}

// TestSourceRecreated parks where the source's topic is not the one that was copied: its offsets mean something else.
func TestSourceRecreated(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "recreated", 1)
	newNumbers(t, from, "recreated", 1).write(20)
	cfg := config(from, to, "recreated", "recreated")
	caughtUp(t, cfg)
	remake(t, from, "recreated", 1)
	n := newNumbers(t, from, "recreated", 1)
	n.write(30)
	stuckAs(t, cfg, "recreatedsrc.recreateddst recreated/0", "source-recreated")
	exactly(t, to, "recreatedsrc.recreated", 1, 0, 20)

	create(t, from, "recreated2", 1)
	newNumbers(t, from, "recreated2", 1).write(20)
	l := start(t, config(from, to, "recreatedlive", "recreated2"))
	waitWritten(t, adminOf(t, to), "recreatedlivesrc.recreated2", 20)
	remake(t, from, "recreated2", 1)
	newNumbers(t, from, "recreated2", 1).write(30)
	l.parked("recreated2", 0, "source-recreated")
	l.stop()
	exactly(t, to, "recreatedlivesrc.recreated2", 1, 0, 20)
}

// TestWriteDenied parks where the target's topic may not be written, and goes on by itself once it may.
func TestWriteDenied(t *testing.T) {
	from, to := east(t), secure(t)
	create(t, from, "denied.no", 1)
	create(t, from, "denied.yes", 1)
	create(t, to, "deniedsrc.denied.no", 1)
	newNumbers(t, from, "denied.no", 1).write(10)
	newNumbers(t, from, "denied.yes", 1).write(10)
	limited(t, to)
	cfg := config(from, to, "denied", "denied[.].*")
	dst := cfg.Clusters["denieddst"]
	dst.Bootstrap, dst.SASL = to.BootstrapOn(kafkatest.SASLPlaintext), &cluster.SASL{Mechanism: "SCRAM-SHA-512", Username: limitedUser, Password: cluster.NewSecret(password)}
	cfg.Clusters["denieddst"] = dst
	deny := kadm.NewACLs().Deny("User:" + limitedUser).DenyHosts("*").Topics("deniedsrc.denied.no").
		ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpWrite)
	acls(t, to, deny)
	l := start(t, cfg)
	if s := l.parked("denied.no", 0, "target-denied"); !strings.Contains(s.Cure, "WRITE") {
		t.Errorf("the cure is %q", s.Cure)
	}
	waitWritten(t, adminOf(t, to), "deniedsrc.denied.yes", 10)
	if _, err := adminOf(t, to).DeleteACLs(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	waitWritten(t, adminOf(t, to), "deniedsrc.denied.no", 10)
	l.stop()
	exactly(t, to, "deniedsrc.denied.no", 1, 0, 10)
	exactly(t, to, "deniedsrc.denied.yes", 1, 0, 10)
}

// TestReadDenied parks one topic that may not be read any more, and goes on by itself once it may.
func TestReadDenied(t *testing.T) {
	from, to := secure(t), west(t)
	limited(t, from)
	no, yes := newTopic(t, from, "unread.no"), newTopic(t, from, "unread.yes")
	no.write(5)
	yes.write(5)
	cfg := config(from, to, "unread", "unread[.].*")
	cfg.Links[0].Refresh = time.Minute // what the topics' list says of a topic that is forbidden is another matter
	src := cfg.Clusters["unreadsrc"]
	src.Bootstrap, src.SASL = from.BootstrapOn(kafkatest.SASLPlaintext), &cluster.SASL{Mechanism: "SCRAM-SHA-512", Username: limitedUser, Password: cluster.NewSecret(password)}
	cfg.Clusters["unreadsrc"] = src
	l := start(t, cfg)
	waitWritten(t, adminOf(t, to), "unreadsrc.unread.no", 5)
	deny := kadm.NewACLs().Deny("User:" + limitedUser).DenyHosts("*").Topics("unread.no").
		ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead)
	acls(t, from, deny)
	if s := l.parked("unread.no", 0, "source-denied"); s.SrcOffset != 5 || !strings.Contains(s.Cure, "READ") {
		t.Errorf("parked at %d with the cure %q", s.SrcOffset, s.Cure)
	}
	no.write(5) // behind the refusal, so that only a lane that heals copies them
	yes.write(5)
	waitWritten(t, adminOf(t, to), "unreadsrc.unread.yes", 10)
	if _, err := adminOf(t, from).DeleteACLs(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	waitWritten(t, adminOf(t, to), "unreadsrc.unread.no", 10)
	l.stop()
	exactly(t, to, "unreadsrc.unread.no", 1, 0, 10)
	exactly(t, to, "unreadsrc.unread.yes", 1, 0, 10)
}

// newTopic creates a topic of one partition to write numbers to.
func newTopic(t *testing.T, k *kafkatest.Kafka, topic string) *numbers {
	t.Helper()
	create(t, k, topic, 1)
	return newNumbers(t, k, topic, 1)
}

// TestRefusedRecords parks on what the target's topic refuses for good, until its config lets it in: a record without a key
// for a compacted topic, and records that are too old.
func TestRefusedRecords(t *testing.T) {
	from, to := east(t), west(t)
	for _, c := range []struct {
		topic, reason  string
		key, old, good string
	}{
		{"keyless", "record-refused", "cleanup.policy", "compact", "delete"},
		{"ancient", "timestamp-refused", "message.timestamp.before.max.ms", "3600000", "9223372036854775807"},
	} {
		t.Run(c.topic, func(t *testing.T) {
			create(t, from, c.topic, 1)
			create(t, to, c.topic+"src."+c.topic, 1, c.key, c.old)
			cl := client(t, from)
			for range 3 {
				r := &kgo.Record{Topic: c.topic, Value: []byte("value"), Timestamp: time.Now().Add(-48 * time.Hour)}
				if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			l := start(t, config(from, to, c.topic, c.topic))
			if s := l.parked(c.topic, 0, c.reason); s.SrcOffset != 0 || s.Cure == "" {
				t.Errorf("parked at %d with the cure %q", s.SrcOffset, s.Cure)
			}
			set(t, to, c.topic+"src."+c.topic, c.key, c.good)
			waitWritten(t, adminOf(t, to), c.topic+"src."+c.topic, 3)
			l.stop()
			sameBytes(t, from, c.topic, to, c.topic+"src."+c.topic, 1)
		})
	}
}

// TestDeleted parks the lanes of a topic that is deleted on either side; the others go on.
func TestDeleted(t *testing.T) {
	from, to := east(t), west(t)
	here, there, stays := newTopic(t, from, "deleted.here"), newTopic(t, from, "deleted.there"), newTopic(t, from, "deleted.not")
	for _, n := range []*numbers{here, there, stays} {
		n.write(5)
	}
	l := start(t, config(from, to, "deleted", "deleted[.].*"))
	admin := adminOf(t, to)
	for _, n := range []*numbers{here, there, stays} {
		waitWritten(t, admin, "deletedsrc."+n.topic, 5)
	}
	if _, err := adminOf(t, from).DeleteTopic(t.Context(), "deleted.here"); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.DeleteTopic(t.Context(), "deletedsrc.deleted.there"); err != nil {
		t.Fatal(err)
	}
	there.write(5)
	stays.write(5)
	l.parked("deleted.there", 0, "target-lost")
	waitFor(t, "deleted.here to be parked", func() bool {
		s := l.lane("deleted.here", 0)
		return s.State == "parked" && (s.Reason == "source-gone" || s.Reason == "source-recreated")
	})
	t.Logf("a deleted source topic is %s", l.lane("deleted.here", 0).Reason)
	waitWritten(t, admin, "deletedsrc.deleted.not", 10)
	l.stop()
	exactly(t, to, "deletedsrc.deleted.not", 1, 0, 10)
	exactly(t, to, "deletedsrc.deleted.here", 1, 0, 5)
}

// limited makes a user that may do what kferry needs on a target.
func limited(t *testing.T, k *kafkatest.Kafka) {
	t.Helper()
	admin := adminOf(t, k)
	if _, err := admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: limitedUser, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: password}}); err != nil {
		t.Fatal(err)
	}
	acls(t, k, kadm.NewACLs().Allow("User:"+limitedUser).AllowHosts("*").Topics("*").ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpCreate, kadm.OpAlter, kadm.OpDescribeConfigs))
	acls(t, k, kadm.NewACLs().Allow("User:"+limitedUser).AllowHosts("*").Clusters().ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpDescribe, kadm.OpCreate, kadm.OpIdempotentWrite, kadm.OpDescribeConfigs))
}

func acls(t *testing.T, k *kafkatest.Kafka, b *kadm.ACLBuilder) {
	t.Helper()
	created, err := adminOf(t, k).CreateACLs(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range created {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
}
