package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Header is the 61 bytes in front of a format 2 batch's records. A lane keeps one for each batch in flight; sent in front of the
// source batch's Payload it makes a batch that a target accepts.
type Header [HeaderSize]byte

// Identity says who writes a batch, for the target's sequence check. ProducerID -1 means nobody: epoch and sequence are then
// written as -1.
type Identity struct {
	ProducerID int64
	Epoch      int16
	Sequence   int32 // of the batch's first record
}

// Patch writes into dst the header under which src's records go to another cluster. dst is the caller's; src is borrowed and not
// touched.
//
// What is changed is what a broker refuses, or would take for its own (LogValidator.java, KafkaApis.scala): base offset 0, leader
// epoch -1, the identity, and the bits for a transaction, LogAppendTime and the delete horizon cleared. Timestamps, offset delta
// and count stay. With the horizon's bit goes only its meaning: the records' times still count from the base timestamp.
//
// The checksum is corrected from src's own, never summed anew: a batch that is damaged, here or at its source, stays damaged for
// the target to see. That holds for small batches too: to sum one of those in full would mean to verify the old sum first, and
// BenchmarkPatch has both passes together dearer than the correction from 128 bytes on.
//
// A control batch, or one of magic 0 or 1, is never sent: it panics.
func Patch(dst *Header, src Batch, id Identity) {
	if src.Magic() != 2 || src.IsControl() {
		panic(fmt.Sprintf("BUG: patch of a batch with magic %d, attributes %#x", src.Magic(), src.Attributes()))
	}
	if id.ProducerID == -1 {
		id.Epoch, id.Sequence = -1, -1
	}
	old := src.b[offAttributes:HeaderSize]
	copy(dst[:], src.b)
	binary.BigEndian.PutUint64(dst[offBaseOffset:], 0)
	binary.BigEndian.PutUint32(dst[offLeaderEpoch:], ^uint32(0))
	attributes := src.Attributes() &^ (bitTransactional | bitLogAppendTime | bitDeleteHorizon)
	binary.BigEndian.PutUint16(dst[offAttributes:], uint16(attributes))
	binary.BigEndian.PutUint64(dst[offProducerID:], uint64(id.ProducerID))
	binary.BigEndian.PutUint16(dst[offProducerEpoch:], uint16(id.Epoch))
	binary.BigEndian.PutUint32(dst[offBaseSequence:], uint32(id.Sequence))

	change := crc32.Checksum(old, castagnoli) ^ crc32.Checksum(dst[offAttributes:], castagnoli)
	binary.BigEndian.PutUint32(dst[offCRC:], src.CRC()^shift(change, len(src.b)-HeaderSize))
}
