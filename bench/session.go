package bench

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessionsMax bounds the session cache, as max.incremental.fetch.session.cache.slots does; beyond it a client gets no session.
const sessionsMax = 1000

// fetchTarget is one partition of a fetch: where it reads and how much at most.
type fetchTarget struct {
	partition int32
	offset    int64
	bytesMax  int32
	shown     bool // the client knows the high watermark: an empty answer may leave the partition out
}

// session is a KIP-227 fetch session of the one topic that a synthetic source has. A session belongs to one connection at a
// time, so only the cache is locked.
type session struct {
	id, epoch  int32 // epoch: the one that the next request has to carry
	partitions []*fetchTarget
}

type sessions struct {
	mu   sync.Mutex
	last int32
	byID map[int32]*session
}

// open finds or makes the session of a request and takes the request's changes into it. A full fetch without a session comes
// back as a session with id 0. The error code is Kafka's (FetchManager in FetchSession.scala).
func (s *sessions) open(req *kmsg.FetchRequest, ours func(kmsg.FetchRequestTopic) bool) (_ *session, full bool, code int16) {
	id, epoch := req.SessionID, req.SessionEpoch
	if req.Version < 7 {
		id, epoch = 0, -1
	}
	if epoch <= 0 { // full fetch: -1 closes the session or has none, 0 asks for a new one
		s.mu.Lock()
		delete(s.byID, id)
		now := new(session)
		if epoch == 0 && len(s.byID) < sessionsMax {
			s.last++
			now.id, now.epoch = s.last, 1
			if s.byID == nil {
				s.byID = make(map[int32]*session)
			}
			s.byID[now.id] = now
		}
		s.mu.Unlock()
		now.update(req, ours)
		return now, true, 0
	}
	s.mu.Lock()
	now := s.byID[id]
	s.mu.Unlock()
	switch {
	case now == nil:
		return nil, false, kerr.FetchSessionIDNotFound.Code
	case now.epoch != epoch:
		return nil, false, kerr.InvalidFetchSessionEpoch.Code
	}
	if now.epoch++; now.epoch < 0 {
		now.epoch = 1
	}
	now.update(req, ours)
	return now, false, 0
}

func (s *session) update(req *kmsg.FetchRequest, ours func(kmsg.FetchRequestTopic) bool) {
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			s.forget(p)
		}
	}
	for _, t := range req.Topics {
		if !ours(t) {
			continue
		}
		for _, p := range t.Partitions {
			f := s.find(p.Partition)
			if f == nil {
				f = &fetchTarget{partition: p.Partition}
				s.partitions = append(s.partitions, f)
			}
			f.offset, f.bytesMax = p.FetchOffset, p.PartitionMaxBytes
		}
	}
}

func (s *session) find(partition int32) *fetchTarget {
	for _, f := range s.partitions {
		if f.partition == partition {
			return f
		}
	}
	return nil
}

func (s *session) forget(partition int32) {
	for i, f := range s.partitions {
		if f.partition == partition {
			s.partitions = append(s.partitions[:i], s.partitions[i+1:]...)
			return
		}
	}
}

// served moves the partitions that were given data behind the others, so that a full answer starves none.
func (s *session) served(got map[int32]bool) {
	var last []*fetchTarget
	kept := s.partitions[:0]
	for _, f := range s.partitions {
		if got[f.partition] {
			last = append(last, f)
		} else {
			kept = append(kept, f)
		}
	}
	s.partitions = append(kept, last...)
}
