package batch

import "encoding/binary"

// Marker is how a transaction ended (KIP-98; Kafka's ControlRecordType.java).
type Marker int16

const (
	Abort  Marker = 0
	Commit Marker = 1
)

func (m Marker) String() string {
	if m == Abort {
		return "abort"
	}
	return "commit"
}

// ControlType returns the marker that a control batch holds. It is false for a batch that is none, for control records that end no
// transaction (leader changes, snapshots), and for bytes that do not parse.
//
// This is the one look behind the header that the data plane takes: a marker is a single uncompressed record with a key of an int16
// version and an int16 type, and its producer id stands in the header.
func (b Batch) ControlType() (Marker, bool) {
	if !b.IsControl() || b.Codec() != None || b.Count() != 1 {
		return 0, false
	}
	p := b.Payload()
	size, p, ok := varint(p)
	if !ok || size < 1 || size > int64(len(p)) {
		return 0, false
	}
	p = p[1:size]                  // less the record's attributes, which mean nothing yet
	if _, p, ok = varint(p); !ok { // timestamp delta
		return 0, false
	}
	if _, p, ok = varint(p); !ok { // offset delta
		return 0, false
	}
	size, p, ok = varint(p)
	if !ok || size < 4 || size > int64(len(p)) {
		return 0, false
	}
	version, kind := int16(binary.BigEndian.Uint16(p)), Marker(binary.BigEndian.Uint16(p[2:]))
	if version < 0 || kind != Abort && kind != Commit {
		return 0, false
	}
	return kind, true
}

// varint takes a zigzag varint off the front of p.
func varint(p []byte) (v int64, rest []byte, ok bool) {
	v, n := binary.Varint(p)
	if n <= 0 {
		return 0, nil, false
	}
	return v, p[n:], true
}
