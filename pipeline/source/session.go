package source

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// asked is a place as the broker was last told. Only if it still is the feed's, here, an answer is delivered: a feed may have
// left meanwhile, been moved, or have come back by way of another connection that read on.
type asked struct {
	feed   *feed
	gen    uint32
	offset int64
}

type nameKey struct {
	topic     string
	partition int32
}

type idKey struct {
	id        [16]byte
	partition int32
}

func (k *partitionKey) nameKey() nameKey { return nameKey{k.topic, k.number} }
func (k *partitionKey) idKey() idKey     { return idKey{k.id, k.number} }

// restart forgets the session: the next request is a full one.
func (f *fetcher) restart() {
	f.session, f.epoch = 0, 0
	f.named, f.numbered = make(map[nameKey]asked), make(map[idKey]asked)
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	f.left, f.dirty = nil, nil
	for x := range f.feeds {
		x.dirty = true
		f.dirty = append(f.dirty, x)
	}
}

// build lays out the next request: in a session only what changed, else all. It returns false when nothing asks.
func (f *fetcher) build(version int16, maxBytes int32) bool {
	s := f.source
	r := &f.request
	topics := r.Topics[:0]
	r.Default()
	r.Version = version
	r.ReplicaID = -1
	r.MinBytes = 1
	r.MaxBytes = maxBytes
	r.MaxWaitMillis = int32(s.opts.BacklogWait.Milliseconds())
	if f.quiet {
		r.MaxWaitMillis = int32(s.opts.QuietWait.Milliseconds())
	}
	if s.opts.ReadCommitted {
		r.IsolationLevel = 1
	}
	r.SessionID, r.SessionEpoch = f.session, f.epoch
	if version < fetchSession {
		r.SessionID, r.SessionEpoch = 0, -1
	}
	full := f.epoch <= 0 || version < fetchSession

	s.mu.Lock()
	defer s.mu.Unlock()
	if f.asking == 0 {
		return false
	}
	r.Rack = s.rackLocked()
	r.ForgottenTopics = r.ForgottenTopics[:0]
	if full {
		for x := range f.feeds {
			if x.wantsLocked() {
				topics = f.add(version, topics, x)
			}
			x.dirty = false
		}
	} else {
		for _, x := range f.dirty {
			if x.fetcher != f || !x.dirty {
				continue
			}
			x.dirty = false
			switch {
			case x.wantsLocked():
				topics = f.add(version, topics, x)
			case f.holds(version, x):
				f.forget(version, x, full)
			}
		}
	}
	clear(f.dirty)
	f.dirty = f.dirty[:0]
	// After the additions: a partition that left and came back, by this feed or another one, must not be forgotten.
	for _, x := range f.left {
		if f.holds(version, x) && x.fetcher != f {
			f.forget(version, x, full)
		}
	}
	clear(f.left)
	f.left = f.left[:0]
	r.Topics = topics
	f.body = r.AppendTo(f.body[:0])
	return true
}

func (f *fetcher) holds(version int16, x *feed) bool {
	if version >= fetchTopicID {
		return f.numbered[x.part.idKey()].feed == x
	}
	return f.named[x.part.nameKey()].feed == x
}

func (f *fetcher) add(version int16, topics []kmsg.FetchRequestTopic, x *feed) []kmsg.FetchRequestTopic {
	place := asked{x, x.gen, x.offset}
	if version >= fetchTopicID {
		f.numbered[x.part.idKey()] = place
	} else {
		f.named[x.part.nameKey()] = place
	}
	p := kmsg.FetchRequestTopicPartition{
		Partition: x.part.number, CurrentLeaderEpoch: x.leader, FetchOffset: x.offset,
		LastFetchedEpoch: x.epoch, LogStartOffset: -1, PartitionMaxBytes: max(x.maxBytes, f.request.MaxBytes/int32(max(f.asking, 1))),
		HighWatermark: math.MaxInt64, // KIP-1166: not for us
	}
	// Feeds of a topic mostly follow each other; a topic that stands twice is fine too.
	if n := len(topics); n > 0 && topics[n-1].Topic == x.part.topic && topics[n-1].TopicID == x.part.id {
		topics[n-1].Partitions = append(topics[n-1].Partitions, p)
		return topics
	}
	if n := len(topics); n < cap(topics) {
		topics = topics[:n+1]
		topics[n].Topic, topics[n].TopicID = x.part.topic, x.part.id
		topics[n].Partitions = append(topics[n].Partitions[:0], p)
		return topics
	}
	return append(topics, kmsg.FetchRequestTopic{Topic: x.part.topic, TopicID: x.part.id, Partitions: []kmsg.FetchRequestTopicPartition{p}})
}

func (f *fetcher) forget(version int16, x *feed, full bool) {
	if version >= fetchTopicID {
		delete(f.numbered, x.part.idKey())
	} else {
		delete(f.named, x.part.nameKey())
	}
	if !full {
		f.request.ForgottenTopics = append(f.request.ForgottenTopics, kmsg.FetchRequestForgottenTopic{
			Topic: x.part.topic, TopicID: x.part.id, Partitions: []int32{x.part.number}})
	}
}
