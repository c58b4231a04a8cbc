package cluster

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/pipeline/kafkatest"
)

// liar changes the next answer to an API, once.
type liar struct {
	mu        sync.Mutex
	armed     bool
	key       int16
	at, which int
	size      int // of the last answer to key that was sound
}

func (l *liar) arm(key int16, at, which int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed, l.key, l.at, l.which = true, key, at, which
}

// disarm says whether the lie was told.
func (l *liar) disarm() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	told := !l.armed
	l.armed = false
	return told
}

func (l *liar) answer(x kafkatest.Exchange, frame []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if x.Key != l.key {
		return frame
	}
	if l.armed {
		l.armed = false
		changed := kafkatest.Lie(frame, l.at, l.which)
		if resp, ok := kafkatest.Answered(x, changed); ok {
			if t, ok := resp.(kmsg.ThrottleResponse); ok {
				if ms, _ := t.Throttle(); ms > 0 {
					return frame // it would be obeyed, and is another test's
				}
			}
		}
		return changed
	}
	l.size = len(frame)
	return frame
}

// asks is what kferry asks by way of franz-go, beside Fetch and Produce of the state's records.
func asks() []kmsg.Request {
	const topic = "orders"
	metadata := kmsg.NewPtrMetadataRequest()
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.ReplicaID = -1
	offsets.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	pid := kmsg.NewPtrInitProducerIDRequest()
	pid.ProducerID, pid.ProducerEpoch = -1, -1
	configs := kmsg.NewPtrDescribeConfigsRequest()
	configs.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms", "cleanup.policy"}}}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.ValidateOnly = true
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 1, ReplicationFactor: 1}}
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.ValidateOnly = true
	grow.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: topic, Count: 9}}
	return []kmsg.Request{metadata, offsets, producers, pid, configs, create, grow, kmsg.NewPtrDescribeClusterRequest()}
}

// allocated is what the process has allocated since it began, in bytes.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// told arms the liar, has ask ask, and checks what came of it: no panic, no memory beyond the limit of an answer, and the next request is
// answered.
func (l *liar) told(t *testing.T, key int16, at, which int, ask func() error) {
	t.Helper()
	before := allocated()
	l.arm(key, at, which)
	err := ask()
	for tries := 0; !l.disarm(); tries++ { // franz-go shares an answer to Metadata for a moment, a bad one too
		if tries == 3 {
			t.Fatalf("%s was not asked for: %v", kmsg.NameForKey(key), err)
		}
		l.arm(key, at, which)
		err = ask()
	}
	if n := allocated() - before; n > maxControlBytes+8<<20 {
		t.Errorf("%s, byte %d, lie %d: %d bytes allocated: %v", kmsg.NameForKey(key), at, which, n, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s, byte %d, lie %d: %v", kmsg.NameForKey(key), at, which, err)
	}
	for tries := 0; ; tries++ {
		err := ask()
		if err == nil {
			return
		}
		if tries == 3 {
			t.Fatalf("%s, byte %d, lie %d: the peer is sane again, and still %v", kmsg.NameForKey(key), at, which, err)
		}
	}
}

// A lie at any byte of any answer to franz-go.
func TestLiesToTheClient(t *testing.T) {
	f := fake(t, kfake.SeedTopics(2, "orders"))
	var l liar
	c := open(t, Config{Bootstrap: f.ListenAddrs(), Dial: (&kafkatest.Tamper{Answer: l.answer}).Dial})
	client, err := c.NewClient(kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, req := range asks() {
		t.Run(kmsg.NameForKey(req.Key()), func(t *testing.T) {
			ask := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, err := client.Request(ctx, req)
				return err
			}
			l.arm(req.Key(), 0, 0)
			l.disarm()
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			for at := range l.size {
				for which := range kafkatest.Lies {
					l.told(t, req.Key(), at, which, ask)
				}
			}
		})
	}
}

// The same for what our own connections ask before the data: versions, SASL, and metadata to see whether a port answers.
func TestLiesToAConnection(t *testing.T) {
	f := fake(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "kferry", "secret"))
	var l liar
	c := open(t, Config{Bootstrap: f.ListenAddrs(), SASL: user("SCRAM-SHA-256", "secret"), Dial: (&kafkatest.Tamper{Answer: l.answer}).Dial})
	if err := c.Refresh(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, key := range []int16{keyAPIVersions, keySASLHandshake, keySASLAuthenticate, int16(kmsg.Metadata)} {
		t.Run(kmsg.NameForKey(key), func(t *testing.T) {
			said := ""
			ask := func() error {
				err := c.Reach(within(t))
				if err != nil && !strings.Contains(err.Error(), "west at "+f.ListenAddrs()[0]) {
					said = err.Error()
				}
				return err
			}
			l.arm(key, 0, 0)
			l.disarm()
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			step := max(l.size/20, 1) // each is a handshake
			for at := 0; at < l.size; at += step {
				for which := range kafkatest.Lies {
					if key == keyAPIVersions && which == kafkatest.Lies-1 {
						continue // an end there looks like a TLS port, and is probed for 3 s
					}
					l.told(t, key, at, which, ask)
				}
			}
			if said != "" {
				t.Errorf("an error that does not name the peer: %s", said)
			}
		})
	}
}

// FuzzPeer has a peer lie over a live connection: which answer, where and how is what the bytes say.
func FuzzPeer(f *testing.F) {
	f.Add(uint8(0), uint16(12), uint8(3))
	f.Add(uint8(4), uint16(0), uint8(1))
	f.Add(uint8(7), uint16(40), uint8(5))
	broker := fake(f, kfake.SeedTopics(2, "orders"))
	var l liar
	c := open(f, Config{Bootstrap: broker.ListenAddrs(), Dial: (&kafkatest.Tamper{Answer: l.answer}).Dial})
	client, err := c.NewClient(kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(client.Close)
	f.Fuzz(func(t *testing.T, api uint8, at uint16, which uint8) {
		all := asks()
		req := all[int(api)%len(all)]
		l.told(t, req.Key(), int(at), int(which), func() error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := client.Request(ctx, req)
			return err
		})
	})
}
