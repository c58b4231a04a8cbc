package pipeline

import (
	"fmt"
	"strings"
	"time"

	"kferry/pipeline/source"
)

// topicRules hold what is known of a topic and its copy. The rules are those of wire-level checks that brokers make
// (LogValidator.java, UnifiedLog.java) and of what deletes or changes records afterwards.
type topicRules struct {
	now            time.Time
	source, target settings // of the copy as it is, or as it would be created
	access         topicAccess
	data           times
	expiration     int64 // the target's producer.id.expiration.ms, 0 where not shown
	memory         int64 // what all data may take, 0 where it does not matter
	found          []Finding
}

func (r *topicRules) warn(cure, format string, args ...any) { r.add(LevelWarn, cure, format, args...) }
func (r *topicRules) fail(cure, format string, args ...any) { r.add(LevelFail, cure, format, args...) }
func (r *topicRules) add(level, cure, format string, args ...any) {
	r.found = append(r.found, Finding{Level: level, Text: fmt.Sprintf(format, args...), Cure: cure})
}

func (r *topicRules) findings() []Finding {
	r.compression()
	r.sizes()
	r.formats()
	r.timestamps()
	r.cleanup()
	r.retention()
	r.replicas()
	return r.found
}

func (r *topicRules) compression() {
	s, d := r.source.get("compression.type"), r.target.get("compression.type")
	if d != "" && d != "producer" && d != s {
		r.warn("set compression.type=producer on the target topic",
			"the target topic has compression.type=%s: its brokers decompress every batch of another codec and compress it again, which costs them CPU and changes the bytes", d)
	}
}

func (r *topicRules) sizes() {
	s, haveSource := r.source.number("max.message.bytes")
	if !haveSource {
		return
	}
	if need := source.Pinned(s); r.memory > 0 && need > r.memory {
		r.fail(fmt.Sprintf("set memory to at least %d, better to twice that", need),
			"max.message.bytes of the source is %d: such a batch takes %d bytes of memory, and memory is %d; it would park its partition", s, need, r.memory)
	}
	if d, ok := r.target.number("max.message.bytes"); ok && d < s {
		r.warn(fmt.Sprintf("set max.message.bytes=%d on the target topic", s),
			"max.message.bytes is %d on the source and %d on the target: a batch between them would be refused and park its partition", s, d)
	}
	if d, ok := r.target.number("segment.bytes"); ok && d < s {
		r.warn(fmt.Sprintf("set segment.bytes to at least %d on the target topic", s),
			"segment.bytes of the target is %d, below the source's max.message.bytes %d: a batch between them would be refused and park its partition", d, s)
	}
}

// oldFormat says whether a message.format.version is from before format 2 (0.11).
func oldFormat(version string) bool {
	return strings.HasPrefix(version, "0.") && !strings.HasPrefix(version, "0.11")
}

func (r *topicRules) formats() {
	if v := r.target.get("message.format.version"); oldFormat(v) {
		r.fail("set message.format.version of the target topic to 0.11.0 or later", "the target topic has message.format.version=%s, which takes no producer ids", v)
	}
	if v := r.source.get("message.format.version"); oldFormat(v) {
		r.warn("rewrite the topic on the source in a newer format if that is too slow",
			"the source topic has message.format.version=%s: what it holds is re-encoded, and each message that is not compressed becomes a batch of its own", v)
	}
}

const appendTime = "LogAppendTime"

func (r *topicRules) timestamps() {
	s, d := r.source.get("message.timestamp.type"), r.target.get("message.timestamp.type")
	if d == appendTime {
		if s != "" && s != appendTime {
			r.warn("set message.timestamp.type=CreateTime on the target topic", "the target topic has message.timestamp.type=LogAppendTime: its records show the time of their copy")
		}
		return // the limits are for producers' times
	}
	if s == appendTime {
		r.warn("set message.timestamp.type=LogAppendTime on the target topic, if the time of the copy will do",
			"the source topic has message.timestamp.type=LogAppendTime and the target has not: consumers there see the producers' times")
	}
	before, haveBefore := r.target.number("message.timestamp.before.max.ms")
	after, haveAfter := r.target.number("message.timestamp.after.max.ms")
	cure := "set message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target topic to 9223372036854775807"
	if difference, ok := r.target.number("message.timestamp.difference.max.ms"); ok && !haveBefore && !haveAfter { // before 3.6
		before, after, haveBefore, haveAfter = difference, difference, true, true
		cure = "set message.timestamp.difference.max.ms of the target topic to 9223372036854775807"
	}
	if age := r.age(); haveBefore && age > before {
		r.fail(cure, "its oldest record is %s old and the target refuses what is older than %s", span(age), span(before))
	}
	if ahead := r.data.newest - r.now.UnixMilli(); haveAfter && r.data.newest > 0 && ahead > after {
		r.fail(cure, "its newest record lies %s in the future and the target refuses what is more than %s ahead", span(ahead), span(after))
	}
	if age := r.age(); r.expiration > 0 && age > r.expiration {
		r.warn("raise producer.id.expiration.ms of the target's brokers (dynamic, at most 24 days) until the backlog is copied",
			"old data: its oldest record is %s old, and the target's brokers forget after %s (producer.id.expiration.ms), by the records' own time, what they use to refuse doubles", span(age), span(r.expiration))
	}
}

// age is that of the oldest record to be copied in ms, 0 where not known.
func (r *topicRules) age() int64 {
	if r.data.oldest == 0 {
		return 0
	}
	return max(r.now.UnixMilli()-r.data.oldest, 0)
}

func (r *topicRules) cleanup() {
	s, d := r.source.get("cleanup.policy"), r.target.get("cleanup.policy")
	if s == "" || d == "" {
		return
	}
	compactSource, compactTarget := strings.Contains(s, "compact"), strings.Contains(d, "compact")
	switch {
	case compactTarget && !compactSource:
		r.warn("set cleanup.policy of the target topic to the source's",
			"cleanup.policy is %s on the source and %s on the target: a record without a key would be refused and park its partition, and older records of a key go", s, d)
	case compactSource && !compactTarget:
		r.warn("set cleanup.policy of the target topic to the source's", "cleanup.policy is %s on the source and %s on the target: the last record of a key is not kept there", s, d)
	}
}

func (r *topicRules) retention() {
	if d := r.target.get("cleanup.policy"); d != "" && !strings.Contains(d, "delete") {
		return
	}
	expires := strings.Contains(r.source.get("cleanup.policy"), "delete")
	for _, key := range []string{"retention.ms", "retention.bytes"} {
		s, haveSource := r.source.number(key)
		d, haveTarget := r.target.number(key)
		if !haveSource || !haveTarget || d < 0 || expires && s >= 0 && s <= d {
			continue
		}
		show := func(n int64) string {
			switch {
			case n < 0:
				return "unlimited"
			case key == "retention.ms":
				return span(n)
			}
			return fmt.Sprintf("%d bytes", n)
		}
		source := show(s)
		if !expires {
			source = "unlimited (only compaction removes)"
		}
		text := fmt.Sprintf("%s is %s on the source and %s on the target: the copy loses records that the source still has", key, source, show(d))
		if key == "retention.ms" && r.age() > d && r.target.get("message.timestamp.type") != appendTime {
			text += fmt.Sprintf(", the oldest, %s old, right after they were copied", span(r.age()))
		}
		r.warn("set "+key+" of the target topic to the source's", "%s", text)
	}
}

func (r *topicRules) replicas() {
	least, ok := r.target.number("min.insync.replicas")
	have := r.access.replicas
	switch {
	case !ok || have == 0:
	case int64(have) < least:
		r.fail("add replicas to the target topic, or lower its min.insync.replicas", "min.insync.replicas of the target is %d and its partitions have %d: every write would be refused", least, have)
	case int64(r.access.insync) < least:
		r.warn("bring the target's brokers back", "a target partition has %d replicas in sync and needs %d: it takes no writes until that is mended", r.access.insync, least)
	case least < 2:
		r.warn("use 3 replicas and min.insync.replicas=2 on the target topic",
			"min.insync.replicas of the target is %d, its replicas %d: what one broker alone has confirmed counts as copied, and is lost with it", least, have)
	}
}

// span shows milliseconds for people.
func span(ms int64) string {
	switch d := time.Duration(min(ms, 1<<43)) * time.Millisecond; {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int64(d.Hours()/24))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int64(d.Hours()))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int64(d.Minutes()))
	}
	return fmt.Sprintf("%d ms", ms)
}
