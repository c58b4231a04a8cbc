package lane

import (
	"fmt"
	"math/bits"

	"kferry/batch"
)

// sighting is what a batch says of its place: the first 16 bytes, which no checksum covers. A bit that flips there would have us
// jump over records, or park at a log that is sound. So what looks odd is read again, and believed once it is said twice.
type sighting struct {
	read  int64 // the position that was read from
	base  int64
	epoch int32
	first int64 // the lowest base that was seen there
	times uint8 // that something odd was
}

// mostSightings is how often one place is read again where it says something else each time.
const mostSightings = 4

// doubted says whether b has to be read again before its place is believed. behind is the batch after it in its response, if it has
// one: where that fits to b, the two bear each other out.
func (m *Machine) doubted(b batch.Batch, behind *batch.Batch) bool {
	if !m.odd(b, behind) {
		return false
	}
	s := &sighting{read: m.read, base: b.BaseOffset(), epoch: b.LeaderEpoch(), first: b.BaseOffset(), times: 1}
	if was := m.sighted; was != nil && was.read == m.read {
		if was.base == s.base && was.epoch == s.epoch || was.times == mostSightings {
			return false
		}
		s.first, s.times = min(s.first, was.first), s.times+was.times
	}
	m.sighted = s
	return true
}

// odd says whether b may not be where it says it is.
func (m *Machine) odd(b batch.Batch, behind *batch.Batch) bool {
	base, next, epoch := b.BaseOffset(), b.NextOffset(), b.LeaderEpoch()
	switch {
	case m.hw >= 0 && next > m.hw:
		// It may also be true: a broker notes the high watermark before it reads, and reads up to the one that stands then
		// (Partition.scala, readRecords). The next answer's is not below it.
		return true
	case base < m.read:
		return true // all our positions are ends of batches
	case base > m.read && (behind == nil && bits.OnesCount64(uint64(base^m.read)) == 1 || contradicted(b, behind)):
		return true // compaction leaves gaps, and so does a bit
	}
	// With an epoch that never was, the broker would answer that its log was cut. Formats 0 and 1 have none.
	return m.readEpoch >= 0 && epoch != -1 && epoch != m.readEpoch && (behind == nil || behind.LeaderEpoch() != epoch)
}

// contradicted says whether the batch behind b in its response begins before b's end.
func contradicted(b batch.Batch, behind *batch.Batch) bool {
	return behind != nil && behind.BaseOffset() < b.NextOffset()
}

// misplaced says what is wrong with the place of a batch that is not doubted any more. was is what was seen before.
func (m *Machine) misplaced(b batch.Batch, behind *batch.Batch, was *sighting) (why string, r Reason) {
	base, next := b.BaseOffset(), b.NextOffset()
	switch {
	case m.hw >= 0 && next > m.hw:
		return fmt.Sprintf("the log ends at %d", m.hw), CorruptReason
	case base > m.read && contradicted(b, behind):
		return fmt.Sprintf("the next one begins at %d", behind.BaseOffset()), CorruptReason
	case base > m.read && was != nil && was.read == m.read && was.first < m.read:
		// On a disk the offset may be wrong: asked for what lies there, the broker passes such a batch over.
		return fmt.Sprintf("expected %d, where one was that said it begins at %d", m.read, was.first), OverlapReason
	case base < m.read && next > m.read && m.read != m.loose:
		return fmt.Sprintf("expected %d", m.read), OverlapReason // another log
	}
	return "", NoReason
}
