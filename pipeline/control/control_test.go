package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"kferry/partitioner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a source and a target with a link of prefix naming between them.
type pair struct {
	*testing.T
	ctx            context.Context
	source, target *kfake.Cluster
	topics         *Topics
	log            *bytes.Buffer
}

func newPair(t *testing.T, include string, target ...kfake.Opt) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	p := &pair{T: t, ctx: ctx, log: new(bytes.Buffer)}
	p.source = p.cluster(kfake.ClusterID("source-id"))
	p.target = p.cluster(append(target, kfake.ClusterID("target-id"))...)
	f, err := partitioner.NewFilter([]string{include}, nil, true)
	p.must(err)
	p.topics = &Topics{
		Source: p.client(p.source), Target: p.client(p.target), Filter: f,
		Namer: partitioner.NewNamer(partitioner.NamingConfig{Kind: partitioner.Prefix}, "east", "west", ".", []string{"east", "west"}),
		Log:   slog.New(slog.NewTextHandler(p.log, nil)),
	}
	return p
}

func (p *pair) cluster(opts ...kfake.Opt) *kfake.Cluster {
	p.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2)}, opts...)...)
	p.must(err)
	p.Cleanup(c.Close)
	return c
}

func (p *pair) client(c *kfake.Cluster) *kgo.Client {
	p.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	p.must(err)
	p.Cleanup(cl.Close)
	return cl
}

func (p *pair) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// make creates a topic; configs are key, value, ….
func (p *pair) make(cl *kgo.Client, topic string, partitions int32, configs ...string) {
	p.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, -1
	for i := 0; i < len(configs); i += 2 {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = configs[i], &configs[i+1]
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(p.ctx, cl)
	p.must(err)
	p.must(kerr.ErrorForCode(resp.Topics[0].ErrorCode))
}

func (p *pair) sync() []Topic {
	p.Helper()
	topics, err := p.topics.Sync(p.ctx)
	p.must(err)
	return topics
}

// explicit returns what is set on a target topic.
func (p *pair) explicit(topic string) map[string]string {
	p.Helper()
	all, err := describeConfigs(p.ctx, p.topics.Target, []string{topic})
	p.must(err)
	p.must(all[topic].err)
	return all[topic].explicit
}

// counts returns the target's partition counts.
func (p *pair) counts() map[string]int32 {
	p.Helper()
	all, err := describe(p.ctx, p.topics.Target, nil)
	p.must(err)
	counts := make(map[string]int32)
	for name, d := range all {
		counts[name] = d.partitions
	}
	return counts
}

func (p *pair) equal(got, want any) {
	p.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateErrors()); d != "" {
		p.Fatalf("-want +got\n%s", d)
	}
}

func TestSyncCreatesCopies(t *testing.T) {
	p := newPair(t, "orders.*")
	src := p.topics.Source
	p.make(src, "orders", 3, "cleanup.policy", "compact", "retention.ms", "1000", "min.insync.replicas", "2",
		"message.timestamp.type", "LogAppendTime", "max.message.bytes", "5000000", "compression.type", "zstd")
	p.make(src, "orders-plain", 1)
	p.make(src, "payments", 1)
	p.make(src, "kferry-state.x.internal", 1)

	planned, err := p.topics.Plan(p.ctx)
	p.must(err)
	if len(planned) != 2 || planned[0].TargetPartitions != 0 || len(p.counts()) != 0 {
		t.Fatalf("plan %+v, target %v", planned, p.counts())
	}
	topics := p.sync()
	p.equal(p.counts(), map[string]int32{"east.orders": 3, "east.orders-plain": 1})
	p.equal(p.explicit("east.orders"), map[string]string{
		"cleanup.policy": "compact", "retention.ms": "1000", "max.message.bytes": "5000000", "compression.type": "zstd"})
	p.equal(p.explicit("east.orders-plain"), map[string]string{})
	for i, want := range []Topic{{Source: "orders", Target: "east.orders", SourcePartitions: 3, TargetPartitions: 3},
		{Source: "orders-plain", Target: "east.orders-plain", SourcePartitions: 1, TargetPartitions: 1}} {
		got := topics[i]
		if got.SourceID == ([16]byte{}) || got.TargetID == ([16]byte{}) || got.SourceID == got.TargetID {
			t.Fatalf("ids of %s: %x, %x", got.Source, got.SourceID, got.TargetID)
		}
		got.SourceID, got.TargetID = [16]byte{}, [16]byte{}
		p.equal(got, want)
	}
	p.equal(p.sync(), topics) // nothing left to do
	if n := strings.Count(p.log.String(), "target topic created"); n != 2 {
		t.Fatalf("%d creations logged\n%s", n, p.log)
	}
}

func TestSyncFollowsGrowthAndNeverShrinks(t *testing.T) {
	p := newPair(t, ".*")
	p.make(p.topics.Source, "grows", 6)
	p.make(p.topics.Source, "small", 2)
	p.make(p.topics.Target, "east.grows", 3)
	p.make(p.topics.Target, "east.small", 5)
	topics := p.sync()
	p.equal(p.counts(), map[string]int32{"east.grows": 6, "east.small": 5})
	if topics[0].TargetPartitions != 6 || topics[0].Err != nil || topics[1].TargetPartitions != 5 || topics[1].Err != nil {
		t.Fatalf("%+v", topics)
	}
}

// One forbidden topic holds up no other, and is tried again.
func TestOneTopicsErrorIsItsOwn(t *testing.T) {
	p := newPair(t, ".*")
	for _, name := range []string{"bad", "good", "hidden", "stuck"} {
		p.make(p.topics.Source, name, 2)
	}
	p.make(p.topics.Target, "east.stuck", 1)
	p.target.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "east.bad", Err: kerr.TopicAuthorizationFailed},
		kfake.Fault{Keys: []kmsg.Key{kmsg.CreatePartitions}, Topic: "east.stuck", Err: kerr.TopicAuthorizationFailed},
	)
	p.source.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "hidden", Err: kerr.TopicAuthorizationFailed})
	topics := p.sync()
	p.equal(p.counts(), map[string]int32{"east.good": 2, "east.stuck": 1})
	for i, want := range []string{
		"create topic east.bad with 2 partitions: TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics: [Topic authorization failed.]: allow CREATE on target topic east.bad, or do it by hand",
		"",
		"read configs of source topic hidden: TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics: [Topic authorization failed.]: allow DESCRIBE_CONFIGS on it, or create east.hidden on the target by hand",
		"grow topic east.stuck from 1 to 2 partitions: TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics: [Topic authorization failed.]: allow ALTER on target topic east.stuck, or do it by hand",
	} {
		got := ""
		if err := topics[i].Err; err != nil {
			got = err.Error()
			if !errors.Is(err, kerr.TopicAuthorizationFailed) {
				t.Errorf("%v does not wrap the broker's answer", err)
			}
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", topics[i].Source, got, want)
		}
	}
	for _, topic := range p.sync() {
		if topic.Err != nil || topic.TargetPartitions != 2 {
			t.Errorf("after another sync: %+v", topic)
		}
	}
}

// refuse answers every creation with a config in refused as a broker does, one
// key at a time, and lets the others pass.
func (p *pair) refuse(code int16, format string, refused ...string) (requests *atomic.Int32) {
	requests = new(atomic.Int32)
	p.target.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		p.target.KeepControl()
		requests.Add(1)
		req := r.(*kmsg.CreateTopicsRequest)
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range req.Topics {
			for _, key := range refused {
				for _, c := range t.Configs {
					if c.Name == key {
						rt := kmsg.NewCreateTopicsResponseTopic()
						rt.Topic, rt.ErrorCode, rt.ErrorMessage = t.Topic, code, kmsg.StringPtr(fmt.Sprintf(format, key))
						resp.Topics = append(resp.Topics, rt)
						return resp, nil, true
					}
				}
			}
		}
		return nil, nil, false
	})
	return requests
}

func TestRefusedConfigsAreDroppedAndNamed(t *testing.T) {
	p := newPair(t, ".*")
	p.make(p.topics.Source, "orders", 1, "retention.ms", "1", "delete.retention.ms", "2", "segment.ms", "3")
	requests := p.refuse(kerr.InvalidConfig.Code, "Unknown topic config name: %s.", "delete.retention.ms", "segment.ms")
	topics := p.sync()
	if topics[0].Err != nil {
		t.Fatal(topics[0].Err)
	}
	p.equal(topics[0].Dropped, []string{"delete.retention.ms", "segment.ms"})
	p.equal(p.explicit("east.orders"), map[string]string{"retention.ms": "1"})
	if n := requests.Load(); n != 3 {
		t.Fatalf("%d requests, want 3", n)
	}
	if !strings.Contains(p.log.String(), "target refused topic configs") {
		t.Fatalf("not logged: %s", p.log)
	}
}

func TestPolicyThatNamesNothingIsShown(t *testing.T) {
	p := newPair(t, ".*")
	p.make(p.topics.Source, "orders", 1, "cleanup.policy", "compact")
	p.refuse(kerr.PolicyViolation.Code, "topics of this cluster take no %s, ask the platform team", "cleanup.policy")
	topics := p.sync()
	if err := topics[0].Err; !errors.Is(err, kerr.PolicyViolation) ||
		!strings.HasSuffix(err.Error(), "(topics of this cluster take no cleanup.policy, ask the platform team)") {
		t.Fatalf("%v", err)
	}
	p.equal(p.counts(), map[string]int32{})
}

// What the target's brokers would do to batches is countered at creation.
func TestCreationLetsBatchesPass(t *testing.T) {
	p := newPair(t, ".*", kfake.BrokerConfigs(map[string]string{"compression.type": "gzip", "message.max.bytes": "1000000"}))
	p.make(p.topics.Source, "orders", 1)
	p.make(p.topics.Source, "raw", 1, "compression.type", "lz4", "max.message.bytes", "5000")
	p.sync()
	p.equal(p.explicit("east.orders"), map[string]string{"compression.type": "producer", "max.message.bytes": "1048588"})
	p.equal(p.explicit("east.raw"), map[string]string{"compression.type": "lz4", "max.message.bytes": "5000"})
}

// Where the broker's defaults are not shown, creation says everything itself.
func TestHiddenDefaultsAreNotTrusted(t *testing.T) {
	p := newPair(t, ".*")
	p.make(p.topics.Source, "orders", 1)
	p.target.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.ClusterAuthorizationFailed})
	p.sync()
	p.equal(p.explicit("east.orders"), map[string]string{"compression.type": "producer", "max.message.bytes": "1048588"})
}

func TestManyTopicsAreFewRequests(t *testing.T) {
	p := newPair(t, ".*")
	req := kmsg.NewPtrCreateTopicsRequest()
	for i := range 450 {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = fmt.Sprintf("t%03d", i), 1, -1
		req.Topics = append(req.Topics, rt)
	}
	_, err := req.RequestWith(p.ctx, p.topics.Source)
	p.must(err)
	creates := p.target.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Observe: true, Count: -1})
	describes := p.source.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Observe: true, Count: -1})
	for _, topic := range p.sync() {
		if topic.Err != nil || topic.TargetPartitions != 1 {
			t.Fatalf("%+v", topic)
		}
	}
	if c, d := creates.Hits(), describes.Hits(); c != 3 || d != 3 {
		t.Fatalf("%d creations and %d descriptions for 450 topics, want 3 and 3", c, d)
	}
}

func TestPlanRefusals(t *testing.T) {
	p := newPair(t, ".*")
	p.make(p.topics.Source, "a", 1)
	p.make(p.topics.Source, "b", 1)
	p.make(p.topics.Source, "west.orders", 1)
	topics := p.sync()
	if err := topics[2].Err; topics[2].Target != "" || !errors.Is(err, ErrNotForwarded) ||
		err.Error() != `not forwarded: topic "west.orders" came from cluster west` {
		t.Fatalf("%+v", topics[2])
	}
	named := p.topics.Namer
	p.topics.Namer = onto("x")
	topics, err := p.topics.Plan(p.ctx)
	p.must(err)
	for _, topic := range topics {
		if topic.Err == nil || !strings.HasSuffix(topic.Err.Error(), "would both be copied to x: rename one of them") {
			t.Fatalf("%+v", topic)
		}
	}
	p.equal(p.counts(), map[string]int32{"east.a": 1, "east.b": 1})
	p.topics.Namer, p.topics.Filter = named, undecided{}
	topics = p.sync()
	if len(topics) != 3 || !errors.Is(topics[0].Err, errUndecided) || topics[1].Err != nil {
		t.Fatalf("%+v", topics)
	}
}

// onto names every topic alike.
type onto string

func (o onto) Target(string) (string, bool) { return string(o), true }
func (o onto) Refusal(string) string        { return "" }
func (o onto) Loops(string) bool            { return false }

var errUndecided = errors.New("pattern did not end")

type undecided struct{}

func (undecided) Accepts(topic string) (bool, error) {
	if topic == "a" {
		return false, errUndecided
	}
	return true, nil
}

func TestUnreachableClusterIsAnError(t *testing.T) {
	p := newPair(t, ".*")
	p.make(p.topics.Source, "a", 1)
	p.target.Close()
	ctx, cancel := context.WithTimeout(p.ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := p.topics.Sync(ctx); err == nil || !strings.HasPrefix(err.Error(), "list target topics: ") {
		t.Fatalf("%v", err)
	}
}

func TestNotEmpty(t *testing.T) {
	p := newPair(t, ".*")
	for _, name := range []string{"full", "empty", "emptied", "missing"} {
		p.make(p.topics.Source, name, 3)
		if name != "missing" {
			p.make(p.topics.Target, "east."+name, 3)
		}
	}
	for _, name := range []string{"east.full", "east.emptied"} {
		p.must(p.topics.Target.ProduceSync(p.ctx, &kgo.Record{Topic: name, Partition: 2, Value: []byte("x")}).FirstErr())
	}
	del := kmsg.NewPtrDeleteRecordsRequest()
	del.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "east.emptied", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 2, Offset: 1}}}}
	_, err := del.RequestWith(p.ctx, p.topics.Target)
	p.must(err)
	topics, err := p.topics.Plan(p.ctx)
	p.must(err)
	got, err := NotEmpty(p.ctx, p.topics.Target, topics)
	p.must(err)
	p.equal(got, []string{"east.full"})

	p.target.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "east.full", Err: kerr.TopicAuthorizationFailed, Count: -1})
	if _, err := NotEmpty(p.ctx, p.topics.Target, topics); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "allow DESCRIBE on target topic east.full") {
		t.Fatalf("%v", err)
	}
}

func TestRefusalNamesKey(t *testing.T) {
	f := func(text, key string, want bool) {
		t.Helper()
		if got := names(text, key); got != want {
			t.Errorf("names(%q, %q) = %v", text, key, got)
		}
	}
	f("Unknown topic config name: retention.ms", "retention.ms", true)
	f("Unknown topic config name: retention.ms.", "retention.ms", true)
	f("Invalid value 1 for configuration retention.ms: too small", "retention.ms", true)
	f("'retention.ms' is not allowed", "retention.ms", true)
	f("Unknown topic config name: delete.retention.ms", "retention.ms", false)
	f("retention.ms.max is too high", "retention.ms", false)
	f("local.retention.ms over retention.ms", "retention.ms", true)
	f("retention.ms", "retention.ms", true)
	f("retention", "retention.ms", false)
	f("", "retention.ms", false)
}
