package cluster

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topology is what was last learned of a cluster: an unchanging snapshot, read by anyone, written by nobody.
type Topology struct {
	Version    uint64 // 0 before the first Refresh; grows with every change
	ClusterID  string
	Controller int32
	Brokers    map[int32]Broker
	Topics     map[string]*Topic // by name

	byID    map[[16]byte]*Topic
	changed chan struct{}
}

// Broker is one member of the cluster.
type Broker struct {
	Host string // as advertised to clients
	Port int32
	Rack string // empty: none
}

// Topic is one topic. Its partitions are numbered by their place.
type Topic struct {
	Name       string
	ID         [16]byte // zero where the brokers give none (before Kafka 2.8)
	Internal   bool
	Partitions []Partition
}

// Partition says who leads.
type Partition struct {
	Leader      int32 // broker id, -1 where there is none
	LeaderEpoch int32 // -1 where it is not known
}

func newTopology() *Topology {
	return &Topology{
		Controller: -1,
		Brokers:    map[int32]Broker{},
		Topics:     map[string]*Topic{},
		byID:       map[[16]byte]*Topic{},
		changed:    make(chan struct{}),
	}
}

// Addr returns a broker's host:port.
func (t *Topology) Addr(broker int32) (addr string, ok bool) {
	b, ok := t.Brokers[broker]
	if !ok {
		return "", false
	}
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), true
}

// Topic returns a topic by its id, nil where none has it.
func (t *Topology) Topic(id [16]byte) *Topic { return t.byID[id] }

// Leader returns who leads a partition; ok is false where the partition is not known or has no leader.
func (t *Topology) Leader(topic string, partition int32) (p Partition, ok bool) {
	known := t.Topics[topic]
	if known == nil || partition < 0 || int(partition) >= len(known.Partitions) {
		return Partition{Leader: -1, LeaderEpoch: -1}, false
	}
	p = known.Partitions[partition]
	return p, p.Leader >= 0
}

// Changed is closed when a later snapshot has taken this one's place.
func (t *Topology) Changed() <-chan struct{} { return t.changed }

// next returns the snapshot after old that m makes, or old itself where nothing differs. Metadata come from any broker, also from
// one that lags behind: a partition's leader epoch never goes back, its leader stays the one of the highest epoch.
func (old *Topology) next(m *kmsg.MetadataResponse) (*Topology, error) {
	t := newTopology()
	t.Version = old.Version + 1
	t.Controller = m.ControllerID
	t.ClusterID = old.ClusterID
	if m.ClusterID != nil {
		t.ClusterID = *m.ClusterID
	}
	for _, b := range m.Brokers {
		broker := Broker{Host: b.Host, Port: b.Port}
		if b.Rack != nil {
			broker.Rack = *b.Rack
		}
		t.Brokers[b.NodeID] = broker
	}
	for i := range m.Topics {
		answer := &m.Topics[i]
		if answer.Topic == nil {
			return nil, fmt.Errorf("%w: a topic without a name", ErrProtocol)
		}
		name := *answer.Topic
		if answer.ErrorCode != 0 {
			// Without a leader it is not described; what was known of it stays.
			if known := old.Topics[name]; known != nil && answer.ErrorCode == kerr.LeaderNotAvailable.Code {
				t.add(known)
			}
			continue
		}
		topic, err := newTopic(name, answer)
		if err != nil {
			return nil, err
		}
		if known := old.Topics[name]; known != nil && known.ID == topic.ID {
			topic.keepNewer(known)
		}
		t.add(topic)
	}
	if t.equal(old) {
		return old, nil
	}
	return t, nil
}

func (t *Topology) add(topic *Topic) {
	t.Topics[topic.Name] = topic
	if topic.ID != [16]byte{} {
		t.byID[topic.ID] = topic
	}
}

func newTopic(name string, answer *kmsg.MetadataResponseTopic) (*Topic, error) {
	topic := &Topic{Name: name, ID: answer.TopicID, Internal: answer.IsInternal, Partitions: make([]Partition, len(answer.Partitions))}
	seen := make([]bool, len(answer.Partitions))
	for _, p := range answer.Partitions {
		if p.Partition < 0 || int(p.Partition) >= len(seen) || seen[p.Partition] {
			return nil, fmt.Errorf("%w: partition %d of topic %q, which has %d", ErrProtocol, p.Partition, name, len(seen))
		}
		seen[p.Partition] = true
		topic.Partitions[p.Partition] = Partition{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch}
	}
	return topic, nil
}

// keepNewer takes over what known, the same topic, knows by a higher leader epoch. Partitions are never taken away from a topic, so
// an answer with fewer is an old one.
func (topic *Topic) keepNewer(known *Topic) {
	for i, was := range known.Partitions {
		switch {
		case i >= len(topic.Partitions):
			topic.Partitions = append(topic.Partitions, was)
		case topic.Partitions[i].LeaderEpoch >= 0 && topic.Partitions[i].LeaderEpoch < was.LeaderEpoch:
			topic.Partitions[i] = was
		}
	}
}

// ahead says whether m tells a lower leader epoch than is known of a topic that is the same.
func (t *Topology) ahead(m *kmsg.MetadataResponse) bool {
	for i := range m.Topics {
		answer := &m.Topics[i]
		if answer.Topic == nil || answer.ErrorCode != 0 {
			continue
		}
		for _, p := range answer.Partitions {
			if was, ok := t.Leader(*answer.Topic, p.Partition); ok && t.Topics[*answer.Topic].ID == answer.TopicID && p.LeaderEpoch >= 0 && p.LeaderEpoch < was.LeaderEpoch {
				return true
			}
		}
	}
	return false
}

func (t *Topology) equal(o *Topology) bool {
	return o.Version > 0 && t.ClusterID == o.ClusterID && t.Controller == o.Controller && maps.Equal(t.Brokers, o.Brokers) &&
		maps.EqualFunc(t.Topics, o.Topics, func(a, b *Topic) bool {
			return a.ID == b.ID && a.Internal == b.Internal && slices.Equal(a.Partitions, b.Partitions)
		})
}
