package pipeline

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// configs makes settings of "key=value key=value".
func configs(text string) settings {
	s := settings{values: map[string]string{}, explicit: map[string]bool{}}
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		s.values[key] = value
	}
	return s
}

func TestTopicRules(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	f := func(source, target string, edit func(*topicRules), want ...string) {
		t.Helper()
		r := topicRules{now: now, source: configs(source), target: configs(target)}
		if edit != nil {
			edit(&r)
		}
		var got []string
		for _, x := range r.findings() {
			got = append(got, x.Level+": "+x.Text)
			if x.Cure == "" {
				t.Errorf("no cure for: %s", x.Text)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s -> %s: (want, got)\n%s", source, target, d)
		}
	}
	old := func(d time.Duration) func(*topicRules) { return func(r *topicRules) { r.data.oldest = ago(d) } }

	f("", "", nil) // nothing is shown, so nothing is known
	f("compression.type=producer", "compression.type=producer", nil)
	f("compression.type=zstd", "compression.type=zstd", nil)
	f("compression.type=producer", "compression.type=gzip", nil,
		"warn: the target topic has compression.type=gzip: its brokers decompress every batch of another codec and compress it again, which costs them CPU and changes the bytes")
	f("max.message.bytes=2000", "max.message.bytes=2000 segment.bytes=2000", nil)
	f("max.message.bytes=2000", "max.message.bytes=1000 segment.bytes=1999", nil,
		"warn: max.message.bytes is 2000 on the source and 1000 on the target: a batch between them would be refused and park its partition",
		"warn: segment.bytes of the target is 1999, below the source's max.message.bytes 2000: a batch between them would be refused and park its partition")
	f("max.message.bytes=40000000", "", func(r *topicRules) { r.memory = 64 << 20 })
	f("max.message.bytes=40000000", "", func(r *topicRules) { r.memory = 16 << 20 },
		"fail: max.message.bytes of the source is 40000000: such a batch takes 67108864 bytes of memory, and memory is 16777216; it would park its partition")
	f("message.format.version=3.0-IV1", "message.format.version=0.11.0-IV2", nil)
	f("message.format.version=0.10.2", "message.format.version=0.9.0", nil,
		"fail: the target topic has message.format.version=0.9.0, which takes no producer ids",
		"warn: the source topic has message.format.version=0.10.2: what it holds is re-encoded, and each message that is not compressed becomes a batch of its own")
	f("message.timestamp.type=CreateTime", "message.timestamp.type=LogAppendTime message.timestamp.before.max.ms=1", old(time.Hour),
		"warn: the target topic has message.timestamp.type=LogAppendTime: its records show the time of their copy")
	f("message.timestamp.type=LogAppendTime", "message.timestamp.type=CreateTime", nil,
		"warn: the source topic has message.timestamp.type=LogAppendTime and the target has not: consumers there see the producers' times")
	f("", "message.timestamp.before.max.ms=3600000", old(time.Hour))
	f("", "message.timestamp.before.max.ms=3600000", old(26*time.Hour),
		"fail: its oldest record is 26 hours old and the target refuses what is older than 60 minutes")
	f("", "message.timestamp.before.max.ms=9223372036854775807 message.timestamp.after.max.ms=3600000", func(r *topicRules) { r.data.newest = ago(-72 * time.Hour) },
		"fail: its newest record lies 3 days in the future and the target refuses what is more than 60 minutes ahead")
	f("", "message.timestamp.difference.max.ms=1000", old(time.Hour),
		"fail: its oldest record is 60 minutes old and the target refuses what is older than 1000 ms")
	f("", "", func(r *topicRules) { r.expiration = 86400000; r.data.oldest = ago(100 * time.Hour) },
		"warn: old data: its oldest record is 4 days old, and the target's brokers forget after 24 hours (producer.id.expiration.ms), by the records' own time, what they use to refuse doubles")
	f("cleanup.policy=delete", "cleanup.policy=compact", nil,
		"warn: cleanup.policy is delete on the source and compact on the target: a record without a key would be refused and park its partition, and older records of a key go")
	f("cleanup.policy=compact", "cleanup.policy=compact", nil)
	f("cleanup.policy=compact", "cleanup.policy=delete retention.ms=1000 retention.bytes=-1", nil,
		"warn: cleanup.policy is compact on the source and delete on the target: the last record of a key is not kept there")
	f("cleanup.policy=delete retention.ms=1000 retention.bytes=5", "cleanup.policy=delete retention.ms=1000 retention.bytes=6", nil)
	f("cleanup.policy=delete retention.ms=-1 retention.bytes=-1", "cleanup.policy=delete retention.ms=172800000 retention.bytes=100", old(240*time.Hour),
		"warn: retention.ms is unlimited on the source and 2 days on the target: the copy loses records that the source still has, the oldest, 10 days old, right after they were copied",
		"warn: retention.bytes is unlimited on the source and 100 bytes on the target: the copy loses records that the source still has")
	f("cleanup.policy=compact retention.ms=1 retention.bytes=-1", "cleanup.policy=compact,delete retention.ms=10 retention.bytes=-1", nil,
		"warn: retention.ms is unlimited (only compaction removes) on the source and 10 ms on the target: the copy loses records that the source still has")
	replicas := func(have, insync int) func(*topicRules) {
		return func(r *topicRules) { r.access.replicas, r.access.insync = have, insync }
	}
	f("", "min.insync.replicas=2", replicas(3, 2))
	f("", "min.insync.replicas=2", replicas(3, 1), "warn: a target partition has 1 replicas in sync and needs 2: it takes no writes until that is mended")
	f("", "min.insync.replicas=2", replicas(1, 1), "fail: min.insync.replicas of the target is 2 and its partitions have 1: every write would be refused")
	f("", "min.insync.replicas=1", replicas(3, 3),
		"warn: min.insync.replicas of the target is 1, its replicas 3: what one broker alone has confirmed counts as copied, and is lost with it")
}

func TestCreatedForetellsACopy(t *testing.T) {
	source := configs("cleanup.policy=compact retention.ms=5 max.message.bytes=9 compression.type=producer message.timestamp.type=LogAppendTime min.insync.replicas=3")
	for key := range source.values {
		source.explicit[key] = key != "retention.ms"
	}
	broker := configs("log.cleanup.policy=delete log.retention.ms=7 message.max.bytes=1 compression.type=gzip log.message.timestamp.type=CreateTime min.insync.replicas=1 log.message.timestamp.after.max.ms=11").values
	want := configs("cleanup.policy=compact retention.ms=7 max.message.bytes=9 compression.type=producer message.timestamp.type=CreateTime min.insync.replicas=1 message.timestamp.after.max.ms=11")
	if d := cmp.Diff(want.values, created(source, broker).values); d != "" {
		t.Error(d)
	}
}
