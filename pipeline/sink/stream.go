package sink

import "kferry/pipeline/lane"

// stream is a lane's binding to one sender. It ends with the first thing that goes wrong: the lane then looks and opens
// another one.
type stream struct {
	sender    *sender
	topic     *topicRef
	partition int32
	slot      *slot
	to        func(lane.Completion) // called under sender.mu

	// guarded by sender.mu
	queue  []*lane.Entry // sent by the lane, not yet in a request
	head   int
	flying int  // its entries in requests without an answer
	queued bool // it stands in sender.ready
	dead   bool // nothing more is sent for it
}

// Send queues entries. On a dead stream they come back Unsent.
func (s *stream) Send(entries []*lane.Entry) {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	s.queue = append(s.queue, entries...)
	if s.dead {
		s.giveBackLocked()
		return
	}
	for _, e := range entries {
		s.sender.readyBytes += e.Size()
	}
	if !s.queued && len(entries) > 0 {
		s.queued = true
		s.sender.ready = append(s.sender.ready, s)
	}
	s.sender.signal()
}

// Budget is what its connection may have under way now.
func (s *stream) Budget() int { return int(s.sender.allowed.Load()) }

// Close gives back what was not written, once all that was has its answer.
func (s *stream) Close() {
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	s.endLocked()
}

// endLocked makes the stream dead: what it had not written comes back.
func (s *stream) endLocked() {
	if !s.dead {
		s.dead = true
		for _, e := range s.queue[s.head:] {
			s.sender.readyBytes -= e.Size()
		}
		delete(s.sender.streams, s)
	}
	s.giveBackLocked()
}

// giveBackLocked answers for what a dead stream will not write. What was written before is answered first: a lane may count on
// the order of its sends.
func (s *stream) giveBackLocked() {
	if s.flying > 0 {
		return
	}
	back := s.queue[s.head:]
	s.queue, s.head = nil, 0
	for _, e := range back {
		s.to(lane.Completion{Entry: e, Outcome: lane.Unsent})
	}
}

// answerLocked answers for an entry that was in a request. Whatever is not an ack ends the stream.
func (s *stream) answerLocked(c lane.Completion) {
	s.flying--
	s.to(c)
	if s.dead || c.Outcome != lane.Acked {
		s.endLocked()
	}
}

// nextLocked takes the first queued entry.
func (s *stream) nextLocked() *lane.Entry {
	e := s.queue[s.head]
	s.queue[s.head] = nil
	s.head++
	if s.head == len(s.queue) {
		s.queue, s.head = s.queue[:0], 0
	}
	s.flying++
	s.sender.readyBytes -= e.Size()
	return e
}

func (s *stream) emptyLocked() bool { return s.head == len(s.queue) }
