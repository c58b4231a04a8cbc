package batch

import (
	"encoding/binary"
	"fmt"
)

// HeaderSize is the size in bytes of a format 2 batch up to its records.
const HeaderSize = 61

// Offsets of a format 2 batch; the first five lie in front of what the checksum covers.
const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57

	sizePrefix = 12 // base offset and length, which length does not count
)

// Offsets of a format 0 or 1 message, where they differ.
const (
	offLegacyCRC        = 12
	offLegacyAttributes = 17
	offLegacyTimestamp  = 18
)

// Attribute bits.
const (
	maskCodec        = 0x07
	bitLogAppendTime = 0x08
	bitTransactional = 0x10
	bitControl       = 0x20
	bitDeleteHorizon = 0x40
)

// Codec is the compression of a batch's records, as numbered by Kafka (CompressionType.java). 5, 6 and 7 are free.
type Codec uint8

const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4 // KIP-110: Produce 7 and Fetch 10 or newer
)

func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec-%d", uint8(c))
}

// Batch is a view of one complete record batch. It is a small value and is passed by value; it holds one reference of the Buf its
// bytes lie in, which whoever takes the Batch releases once. Only Scan makes one, so
// 0 <= BaseOffset < NextOffset holds whatever the network sent; nothing else in a header is checked.
//
// Magic 0 and 1 come as views too. They are single messages without most fields: the accessors then give what Kafka gives for
// them, mostly -1.
type Batch struct {
	b   []byte
	buf *Buf
}

// Bytes returns the whole batch, header and records. Valid until the batch is released; read-only.
func (b Batch) Bytes() []byte { return b.b }

// Size returns the bytes of the whole batch: 12 more than its length field.
func (b Batch) Size() int { return len(b.b) }

// Payload returns the bytes behind the 61-byte header, nil for magic 0 and 1. Valid until the batch is released; read-only.
func (b Batch) Payload() []byte {
	if b.legacy() {
		return nil
	}
	return b.b[HeaderSize:]
}

// Retain takes one more reference of the batch's Buf, to be given back by one more Release.
func (b Batch) Retain() {
	if b.buf != nil {
		b.buf.Retain()
	}
}

// Release gives the batch's reference back. No slice of the batch may be used after it.
func (b Batch) Release() {
	if b.buf != nil {
		b.buf.Release()
	}
}

// BaseOffset returns the offset of the first record; for magic 0 and 1 that of the message, which for a compressed wrapper is the
// last one inside.
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b.b[offBaseOffset:])) }

// LastOffsetDelta returns the last record's offset less the base offset. Compaction keeps it, so it may point past the last record there is.
func (b Batch) LastOffsetDelta() int32 {
	if b.legacy() {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b.b[offLastOffsetDelta:]))
}

// NextOffset returns the offset behind the batch, from which a fetch goes on.
func (b Batch) NextOffset() int64 { return b.BaseOffset() + int64(b.LastOffsetDelta()) + 1 }

// LeaderEpoch returns the epoch of the leader that appended the batch, -1 if unknown.
func (b Batch) LeaderEpoch() int32 {
	if b.legacy() {
		return -1
	}
	return int32(binary.BigEndian.Uint32(b.b[offLeaderEpoch:]))
}

// Magic returns the message format, 0, 1 or 2.
func (b Batch) Magic() int8 { return int8(b.b[offMagic]) }

func (b Batch) legacy() bool { return b.b[offMagic] < 2 }

// CRC returns the stored checksum: CRC-32C, for magic 0 and 1 CRC-32 (IEEE). See Verify.
func (b Batch) CRC() uint32 {
	if b.legacy() {
		return binary.BigEndian.Uint32(b.b[offLegacyCRC:])
	}
	return binary.BigEndian.Uint32(b.b[offCRC:])
}

// Attributes returns the attribute bits as stored, see the package comment.
func (b Batch) Attributes() int16 {
	if b.legacy() {
		return int16(b.b[offLegacyAttributes])
	}
	return int16(binary.BigEndian.Uint16(b.b[offAttributes:]))
}

// Codec returns the compression of the records. It may be one that Kafka does not know.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & maskCodec) }

// HasLogAppendTime says that consumers see MaxTimestamp as every record's time, not the producer's times inside (KIP-32).
func (b Batch) HasLogAppendTime() bool { return b.Attributes()&bitLogAppendTime != 0 }

// IsTransactional says that the batch belongs to a transaction, be it open, committed or aborted.
func (b Batch) IsTransactional() bool { return !b.legacy() && b.Attributes()&bitTransactional != 0 }

// IsControl says that the batch was written by a broker and holds a marker, see ControlType.
func (b Batch) IsControl() bool { return !b.legacy() && b.Attributes()&bitControl != 0 }

// HasDeleteHorizon says that the base timestamp is the time when the batch's tombstones may go (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return !b.legacy() && b.Attributes()&bitDeleteHorizon != 0 }

// BaseTimestamp returns the time in ms that the records' deltas count from; -1 for magic 0.
func (b Batch) BaseTimestamp() int64 {
	if b.legacy() {
		return b.legacyTimestamp()
	}
	return int64(binary.BigEndian.Uint64(b.b[offBaseTimestamp:]))
}

// MaxTimestamp returns the newest record's time in ms; -1 for none and for magic 0.
func (b Batch) MaxTimestamp() int64 {
	if b.legacy() {
		return b.legacyTimestamp()
	}
	return int64(binary.BigEndian.Uint64(b.b[offMaxTimestamp:]))
}

func (b Batch) legacyTimestamp() int64 {
	if b.Magic() == 0 {
		return -1
	}
	return int64(binary.BigEndian.Uint64(b.b[offLegacyTimestamp:]))
}

// ProducerID returns the id of the idempotent producer in the space of the batch's own cluster, -1 for none.
func (b Batch) ProducerID() int64 {
	if b.legacy() {
		return -1
	}
	return int64(binary.BigEndian.Uint64(b.b[offProducerID:]))
}

// ProducerEpoch returns the producer's epoch, -1 for none.
func (b Batch) ProducerEpoch() int16 {
	if b.legacy() {
		return -1
	}
	return int16(binary.BigEndian.Uint16(b.b[offProducerEpoch:]))
}

// BaseSequence returns the sequence number of the first record, -1 for none.
func (b Batch) BaseSequence() int32 {
	if b.legacy() {
		return -1
	}
	return int32(binary.BigEndian.Uint32(b.b[offBaseSequence:]))
}

// Count returns the number of records as the header has it, unchecked; -1 for magic 0 and 1, where it is unknown.
func (b Batch) Count() int32 {
	if b.legacy() {
		return -1
	}
	return int32(binary.BigEndian.Uint32(b.b[offCount:]))
}

// Dense says that the batch holds a record for each of its offsets, and at least one: what a broker demands of a produced batch
// (LogValidator.java). False for magic 0 and 1.
func (b Batch) Dense() bool {
	n := b.Count()
	return n > 0 && n-1 == b.LastOffsetDelta()
}
