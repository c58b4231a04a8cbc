package sink

import "kferry/pipeline/lane"

// stream is a lane's binding to one sender. It ends with the first thing that goes wrong: the lane then looks and opens
// another one.
type stream struct {
	sender    *sender
	topic     *topicRef
	partition int32
	slot      *slot
	to        func(lane.Completion)

	// guarded by sender.mu
	queue  []*lane.Entry // sent by the lane, not yet in a request
	head   int
	queued bool // it stands in sender.ready
	dead   bool // nothing more is sent for it
}

// Send queues entries. On a dead stream they come back Unsent.
func (s *stream) Send(entries []*lane.Entry) {
	s.sender.mu.Lock()
	if s.dead {
		s.sender.mu.Unlock()
		for _, e := range entries {
			s.to(lane.Completion{Entry: e, Outcome: lane.Unsent})
		}
		return
	}
	for _, e := range entries {
		s.queue = append(s.queue, e)
		s.sender.readyBytes += e.Size()
	}
	if !s.queued {
		s.queued = true
		s.sender.ready = append(s.sender.ready, s)
	}
	s.sender.mu.Unlock()
	s.sender.signal()
}

// Close gives back what was not written.
func (s *stream) Close() {
	s.sender.mu.Lock()
	back := s.endLocked()
	s.sender.mu.Unlock()
	for _, e := range back {
		s.to(lane.Completion{Entry: e, Outcome: lane.Unsent})
	}
}

// endLocked makes the stream dead and returns what it had not written. The caller completes it, without the lock.
func (s *stream) endLocked() []*lane.Entry {
	if s.dead {
		return nil
	}
	s.dead = true
	back := s.queue[s.head:]
	for _, e := range back {
		s.sender.readyBytes -= e.Size()
	}
	s.queue, s.head = nil, 0
	delete(s.sender.streams, s)
	return back
}

// nextLocked takes the first queued entry.
func (s *stream) nextLocked() *lane.Entry {
	e := s.queue[s.head]
	s.queue[s.head] = nil
	s.head++
	if s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	}
	s.sender.readyBytes -= e.Size()
	return e
}

func (s *stream) emptyLocked() bool { return s.head == len(s.queue) }
