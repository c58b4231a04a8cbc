package lane

import (
	"slices"

	"kferry/batch"
)

// print is the fingerprint of a batch that was sent: the same numbers may only go to the same bytes. A source that was
// compacted between the sending and the reading again would else be counted off wrongly, or a late arrival of the first
// bytes would stand for others.
type print struct {
	first int64 // sequence, as in Entry
	count int32
	crc   uint32 // of the record section
}

// remember keeps the fingerprint of an entry whose buffer is given back, if it was ever sent. There are no more of them
// than entries in a window.
func (m *Machine) remember(e *Entry) {
	if e.first >= m.sentSeq || e.refused {
		return
	}
	v := m.doubts()
	if n := len(v.prints); n > 0 && v.prints[n-1].first >= e.first {
		return // given back before
	}
	v.prints = append(v.prints, print{e.first, e.count, e.Batch.PayloadCRC()})
}

// asSent says whether b may take the next numbers: they were not sent before, or were sent with these bytes.
func (m *Machine) asSent(b batch.Batch) bool {
	v := m.evidence
	if v == nil || len(v.prints) == 0 {
		return true
	}
	i := slices.IndexFunc(v.prints, func(p print) bool { return p.first+int64(p.count) > m.tip.Seq })
	if i < 0 {
		v.prints = nil // all are counted off
		return true
	}
	v.prints = v.prints[i:]
	p := v.prints[0]
	if p.first >= m.tip.Seq+int64(b.Count()) {
		return true
	}
	return p.first == m.tip.Seq && p.count == b.Count() && p.crc == b.PayloadCRC()
}
