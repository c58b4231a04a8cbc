package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/state"
)

// check runs Check and shows each finding as one line.
func (p *twins) check(cfg Config) (CheckReport, []string) {
	p.Helper()
	pl := p.pipeline(cfg, Options{})
	defer pl.Close()
	ctx, cancel := context.WithTimeout(p.Context(), 60*time.Second)
	defer cancel()
	report, err := pl.Check(ctx)
	if err != nil {
		p.Fatal(err)
	}
	var lines []string
	for _, f := range report.Findings {
		line := strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Level, f.Link, f.Topic)) + ": " + f.Text
		if f.Cure != "" {
			line += " | " + f.Cure
		}
		lines = append(lines, line)
	}
	return report, lines
}

// configured makes a topic with configs, given as key=value.
func (p *twins) configured(c *kfake.Cluster, name string, partitions int32, replicas int16, configs ...string) {
	p.Helper()
	set := make(map[string]*string)
	for _, text := range configs {
		key, value, _ := strings.Cut(text, "=")
		set[key] = &value
	}
	if _, err := kadm.NewClient(p.client(c)).CreateTopic(p.Context(), partitions, replicas, set, name); err != nil {
		p.Fatal(err)
	}
}

// The whole of what check says of a pair that has a bit of everything.
func TestCheck(t *testing.T) {
	p := newTwins(t)
	p.configured(p.east, "west.back", 1, 3) // came from west
	p.configured(p.east, "orders", 6, 3, "retention.ms=-1")
	p.configured(p.east, "table", 1, 3, "cleanup.policy=compact")
	p.configured(p.east, "large", 2, 3, "max.message.bytes=2000000")
	p.configured(p.west, "east.orders", 3, 3, "min.insync.replicas=2", "compression.type=zstd", "retention.ms=86400000")
	p.configured(p.west, "east.large", 4, 3, "min.insync.replicas=2", "max.message.bytes=1000000")
	old := &kgo.Record{Topic: "orders", Value: []byte("x"), Timestamp: time.Now().Add(-100 * time.Hour)}
	if err := p.client(p.east).ProduceSync(t.Context(), old).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := p.client(p.west).ProduceSync(t.Context(), &kgo.Record{Topic: "east.large"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	report, got := p.check(p.config(DefaultLink("east", "west")))
	want := []string{
		"ok: east: reached: cluster id east, brokers: 3, topics that kferry may see: 4",
		"ok: west: reached: cluster id west, brokers: 3, topics that kferry may see: 2",
		"fail east.west: the link has no state on west, and east.large holds records there: a copy would append to them | empty or delete them, exclude them, or set onto_existing: true",
		"warn east.west large: max.message.bytes is 2000000 on the source and 1000000 on the target: a batch between them would be refused and park its partition | set max.message.bytes=2000000 on the target topic",
		"warn east.west orders: the target topic has compression.type=zstd: its brokers decompress every batch of another codec and compress it again, which costs them CPU and changes the bytes | set compression.type=producer on the target topic",
		"warn east.west orders: retention.ms is unlimited on the source and 24 hours on the target: the copy loses records that the source still has, the oldest, 4 days old, right after they were copied | set retention.ms of the target topic to the source's",
		"warn east.west table: min.insync.replicas of the target is 1, its replicas 3: what one broker alone has confirmed counts as copied, and is lost with it | use 3 replicas and min.insync.replicas=2 on the target topic",
		"ok east.west large: east.large has 4 partitions and the source 2: the others stay empty, and keys lie in other partitions than a producer on the target would choose",
		"ok east.west orders: east.orders has 3 partitions and the source 6: it would be given the missing ones",
		`ok east.west west.back: not forwarded: topic "west.back" came from the target, cluster id west, there called west`,
		"ok east.west: would copy 3 topics with 9 partitions",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(want, got)\n%s", d)
	}
	if report.Passes() || !report.Reached() {
		t.Errorf("passes %v, reached %v", report.Passes(), report.Reached())
	}
	topics, err := kadm.NewClient(p.client(p.west)).ListTopics(t.Context())
	if err != nil || len(topics.Names()) != 2 {
		t.Errorf("check wrote to the target: %v, %v", topics.Names(), err)
	}
}

func TestCheckPassesALinkThatRuns(t *testing.T) {
	p, cfg := copied(t, 2)
	report, got := p.check(cfg)
	if !report.Passes() || !report.Reached() {
		t.Errorf("got %v", got)
	}
	cfg.Links[0].Topics.Include = []string{"none"}
	if _, got = p.check(cfg); !strings.HasPrefix(got[len(got)-1], "warn east.west: nothing would be copied: ") {
		t.Errorf("got %v", got)
	}
}

func TestCheckNamesWhatDoesNotAnswer(t *testing.T) {
	p := newTwins(t)
	cfg := p.config(DefaultLink("east", "west"))
	p.west.Close()
	report, got := p.check(cfg)
	if !report.Passes() || report.Reached() || len(got) != 2 {
		t.Fatalf("passes %v, reached %v: %v", report.Passes(), report.Reached(), got)
	}
	if want := "fail: refresh metadata of west: "; !strings.HasPrefix(got[0], want) || !strings.Contains(got[0], "connection refused") {
		t.Errorf("got %s", got[0])
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	pl := p.pipeline(cfg, Options{})
	defer pl.Close()
	if _, err := pl.Check(ctx); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
}

func TestCheckRefusesOneClusterTwice(t *testing.T) {
	p := newTwins(t)
	cfg := p.config(DefaultLink("east", "west"))
	c := cfg.Clusters["west"]
	c.Bootstrap = cfg.Clusters["east"].Bootstrap[:1]
	cfg.Clusters["west"] = c
	c.Alias, c.Bootstrap = "east", cfg.Clusters["east"].Bootstrap[1:]
	cfg.Clusters["east"] = c
	report, got := p.check(cfg)
	want := "fail east.west: refused: east and west are one cluster (id east): allow_same_cluster: true permits that"
	if report.Passes() || got[len(got)-1] != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

// answer lets a cluster's Metadata answers be edited: what it says of permissions and replicas.
func answer(c *kfake.Cluster, edit func(topic string, t *kmsg.MetadataResponseTopic)) {
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !req.(*kmsg.MetadataRequest).IncludeTopicAuthorizedOperations {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.AuthorizedOperations = asked.Topic, -1
			edit(*asked.Topic, &rt)
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

func TestCheckNamesMissingPermissions(t *testing.T) {
	p, cfg := copied(t, 1)
	p.configured(p.east, "grown", 2, 3)
	p.configured(p.west, "east.grown", 1, 3)
	p.configured(p.east, "new", 1, 3)
	deny := func(t *kmsg.MetadataResponseTopic, operations ...int) {
		for _, op := range operations {
			t.AuthorizedOperations &^= 1 << op
		}
	}
	answer(p.east, func(topic string, rt *kmsg.MetadataResponseTopic) {
		if topic == "t" {
			deny(rt, opRead)
		}
	})
	answer(p.west, func(topic string, rt *kmsg.MetadataResponseTopic) {
		switch topic {
		case "east.t", state.TopicName("east"):
			deny(rt, opWrite)
		case "east.grown":
			deny(rt, opAlter)
		case "east.new":
			rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
	})
	p.west.ControlKey(int16(kmsg.DescribeCluster), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.west.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
		resp.ClusterAuthorizedOperations = 1 << opAlter
		return resp, nil, true
	})
	report, got := p.check(cfg)
	want := []string{
		"fail east.west t: kferry may not read it on east | grant READ on the topic to kferry's principal on east",
		"fail east.west t: kferry may not write east.t on west | grant WRITE on the topic to kferry's principal on west",
		"fail east.west grown: kferry may not add partitions to east.grown on west | grant ALTER on the topic to kferry's principal on west",
		"fail east.west: kferry may not read and write its state topic kferry-state.east.internal on west | grant READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on it to kferry's principal on west",
		"warn east.west: kferry has no grant for the whole cluster west to create topics: where it has none for those topics either, creating them fails | " +
			"grant CREATE on the topics, by prefix or one by one, or on the cluster, to kferry's principal on west",
	}
	var found []string
	for _, line := range got {
		if strings.Contains(line, "grant ") {
			found = append(found, line)
		}
	}
	// By topic, in the order of their names; the link's own last.
	want[0], want[1], want[2] = want[2], want[0], want[1]
	if d := cmp.Diff(want, found); d != "" || report.Passes() {
		t.Errorf("(want, got)\n%s", d)
	}
}

func TestCheckNamesConfigsThatCannotBeRead(t *testing.T) {
	p := newTwins(t)
	for _, topic := range []string{"both", "fresh"} {
		p.configured(p.east, topic, 1, 3)
	}
	p.configured(p.west, "east.both", 1, 3)
	p.east.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.east.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ResourceType, r.ResourceName, r.ErrorCode = asked.ResourceType, asked.ResourceName, kerr.TopicAuthorizationFailed.Code
			resp.Resources = append(resp.Resources, r)
		}
		return resp, nil, true
	})
	report, got := p.check(p.config(DefaultLink("east", "west")))
	denied := kerr.TopicAuthorizationFailed.Error()
	want := []string{
		"fail east.west fresh: its configs cannot be read on east, and without them no copy is created: " + denied +
			" | grant DESCRIBE_CONFIGS on the topic to kferry's principal on east, or create it on the target by hand",
		"warn east.west both: its configs cannot be read on east, so they were not compared: " + denied +
			" | grant DESCRIBE_CONFIGS on the topic to kferry's principal on east",
	}
	if len(got) < 4 {
		t.Fatalf("got %v", got)
	}
	if d := cmp.Diff(want, got[2:4]); d != "" || report.Passes() {
		t.Errorf("(want, got)\n%s", d)
	}
}
