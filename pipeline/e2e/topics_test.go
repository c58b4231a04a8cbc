package e2e

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"kferry/pipeline"
	"kferry/pipeline/kafkatest"
)

// TestNewTopics lets a running link find topics and partitions: what is new is copied from its first record, also where the
// link starts at the end of what was there.
func TestNewTopics(t *testing.T) {
	from, to := east(t), west(t)
	admin := adminOf(t, to)
	create(t, from, "grown.a", 1)
	a := newNumbers(t, from, "grown.a", 1)
	a.write(10)
	cfg := config(from, to, "grown", "grown[.].*")
	cfg.Links[0].Start = pipeline.Start{Kind: pipeline.StartLatest}
	l := start(t, cfg)
	a.write(5)
	waitWritten(t, admin, "grownsrc.grown.a", 5)

	create(t, from, "grown.b", 2)
	b := newNumbers(t, from, "grown.b", 2)
	b.write(7) // before the link has seen the topic, or behind: all of it counts
	waitWritten(t, admin, "grownsrc.grown.b", 14)

	if _, err := adminOf(t, from).UpdatePartitions(t.Context(), 3, "grown.a"); err != nil {
		t.Fatal(err)
	}
	wide := newNumbers(t, from, "grown.a", 3)
	wide.write(4)
	waitWritten(t, admin, "grownsrc.grown.a", 5+3*4)
	l.stop()

	// After a restart too: a topic that was born while nobody looked is copied from its first record.
	create(t, from, "grown.c", 1)
	newNumbers(t, from, "grown.c", 1).write(6)
	caughtUp(t, cfg)
	exactly(t, to, "grownsrc.grown.b", 2, 0, 7)
	exactly(t, to, "grownsrc.grown.c", 1, 0, 6)
	found := counted(t, to, "grownsrc.grown.a")
	if got, want := fmt.Sprint(found), "map[0:[10 11 12 13 14 0 1 2 3] 1:[0 1 2 3] 2:[0 1 2 3]]"; got != want {
		t.Fatalf("grown.a has %s, want %s", got, want)
	}
}

// TestConfigs creates the target's topic with the source's configs, less those that are the target's own business.
func TestConfigs(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "configs", 3, "cleanup.policy", "compact,delete", "retention.ms", "123456789", "max.message.bytes", "2000000",
		"segment.bytes", "2097152", "min.insync.replicas", "1", "message.timestamp.type", "LogAppendTime", "unclean.leader.election.enable", "true")
	caughtUp(t, config(from, to, "configs", "configs"))
	got := explicit(t, to, "configssrc.configs")
	want := map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "123456789", "max.message.bytes": "2000000", "segment.bytes": "2097152"}
	if !maps.Equal(got, want) {
		t.Fatalf("the target's topic is made with %v, want %v", got, want)
	}
	if n := len(ends(t, to, "configssrc.configs")); n != 3 {
		t.Fatalf("the target's topic has %d partitions, want 3", n)
	}
}

// explicit are the configs that are set on a topic itself.
func explicit(t *testing.T, k *kafkatest.Kafka, topic string) map[string]string {
	t.Helper()
	described, err := adminOf(t, k).DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	set := make(map[string]string)
	for _, c := range described[0].Configs {
		if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			set[c.Key] = c.MaybeValue()
		}
	}
	return set
}

// TestTimestampTypes copies between topics that stamp records differently: a copy has its producer's times unless the
// target stamps by itself.
func TestTimestampTypes(t *testing.T) {
	from, to := east(t), west(t)
	const brokers = "LogAppendTime"
	create(t, from, "stamped.source", 1, "message.timestamp.type", brokers)
	create(t, from, "stamped.target", 1)
	create(t, to, "stampsrc.stamped.target", 1, "message.timestamp.type", brokers)
	create(t, from, "stamped.both", 1, "message.timestamp.type", brokers)
	create(t, to, "stampsrc.stamped.both", 1, "message.timestamp.type", brokers)
	then := time.Now().Add(-24 * time.Hour).UnixMilli()
	var records []kafkatest.Record
	for i := range 20 {
		for _, topic := range []string{"stamped.source", "stamped.target", "stamped.both"} {
			records = append(records, kafkatest.Record{Topic: topic, Key: []byte("key"), Value: fmt.Appendf(nil, "%d", i), Timestamp: then + int64(i)*1000})
		}
	}
	write(t, from, records)
	caughtUp(t, config(from, to, "stamp", "stamped[.].*"))
	holds(t, to, "stampsrc.stamped.source", kafkatest.Of("stamped.source", records))
	for _, r := range read(t, to, "stampsrc.stamped.source")[0] {
		if r.Attrs.TimestampType() != 0 {
			t.Fatalf("offset %d has timestamp type %d, want CreateTime", r.Offset, r.Attrs.TimestampType())
		}
	}
	for _, topic := range []string{"stampsrc.stamped.target", "stampsrc.stamped.both"} {
		stamped := read(t, to, topic)[0]
		if len(stamped) != 20 {
			t.Fatalf("%s: %d records on the target that stamps, want 20", topic, len(stamped))
		}
		for i, r := range stamped {
			if r.Attrs.TimestampType() != 1 || time.Since(r.Timestamp) > time.Hour || string(r.Value) != fmt.Sprint(i) {
				t.Fatalf("%s at %d: type %d, time %v, value %s; want the target's time and value %d", topic, r.Offset, r.Attrs.TimestampType(), r.Timestamp, r.Value, i)
			}
		}
	}
}

// TestStartTime resolves a time once: what a restart would find for it does not matter.
func TestStartTime(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "timed", 1)
	cl := client(t, from)
	hour := time.Now().Add(-time.Hour).Truncate(time.Second)
	put := func(number int, at time.Time) {
		r := &kgo.Record{Topic: "timed", Key: fmt.Appendf(nil, "%d", number), Timestamp: at}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		put(i, hour.Add(time.Duration(i)*time.Minute))
	}
	cfg := config(from, to, "timed", "timed")
	cfg.Links[0].Start = pipeline.Start{Kind: pipeline.StartTime, Time: hour.Add(3 * time.Minute)}
	caughtUp(t, cfg)
	exactly(t, to, "timedsrc.timed", 1, 3, 5)

	late := config(from, to, "later", "timed") // a time that no record has yet: from the end on
	late.Links[0].Start = pipeline.Start{Kind: pipeline.StartTime, Time: hour.Add(30 * time.Minute)}
	caughtUp(t, late)
	for i := range 3 {
		put(5+i, hour.Add(time.Duration(5+i)*time.Minute)) // all before that time
	}
	caughtUp(t, cfg)
	exactly(t, to, "timedsrc.timed", 1, 3, 8)
	caughtUp(t, late)
	exactly(t, to, "latersrc.timed", 1, 5, 8)
}

// remake deletes a topic and creates it anew.
func remake(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32) {
	t.Helper()
	admin := adminOf(t, k)
	if _, err := admin.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	waitFor(t, topic+" to be gone", func() bool {
		r, err := admin.CreateTopic(t.Context(), partitions, 1, nil, topic)
		return err == nil && r.Err == nil
	})
}

// set changes one config of a topic.
func set(t *testing.T, k *kafkatest.Kafka, topic, key, value string) {
	t.Helper()
	r, err := adminOf(t, k).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: key, Value: &value}}, topic)
	if err == nil {
		err = r[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}
