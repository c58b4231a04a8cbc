package lane

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

const (
	transactional = 1 << 4
	control       = 1 << 5
)

// plain is a batch of n records at base, 100 bytes on the wire. What the records hold, only the payload's bytes tell.
func plain(base int64, n int32, payload ...byte) kmsg.RecordBatch {
	return kmsg.RecordBatch{
		FirstOffset: base, PartitionLeaderEpoch: 4, Magic: 2, LastOffsetDelta: n - 1, NumRecords: n,
		FirstTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_000,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		Records: append(payload, make([]byte, 39-len(payload))...),
	}
}

// inTxn makes b part of a transaction of pid.
func inTxn(b kmsg.RecordBatch, pid int64, epoch int16) kmsg.RecordBatch {
	b.ProducerID, b.ProducerEpoch, b.FirstSequence = pid, epoch, 0
	b.Attributes |= transactional
	return b
}

// marker ends a transaction of pid.
func marker(base, pid int64, epoch int16, kind batch.Marker) kmsg.RecordBatch {
	r := kmsg.Record{Key: []byte{0, 0, 0, byte(kind)}, Value: make([]byte, 6)}
	r.Length = int32(len(r.AppendTo(nil)) - 1)
	b := inTxn(plain(base, 1), pid, epoch)
	b.Attributes |= control
	b.FirstSequence = -1
	b.Records = r.AppendTo(nil)
	return b
}

// sealed returns b as it lies in a log, length and checksum set.
func sealed(b kmsg.RecordBatch) []byte {
	b.Length = int32(49 + len(b.Records))
	wire := b.AppendTo(nil)
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	return wire
}

// fetched returns the batches of one response, which is a buffer of pool's; theirs are its only references.
func fetched(t interface{ Fatalf(string, ...any) }, pool *batch.Pool, wires ...[]byte) []batch.Batch {
	size := 0
	for _, w := range wires {
		size += len(w)
	}
	buf := pool.Get(size)
	defer buf.Release()
	b := buf.Bytes()[:0]
	for _, w := range wires {
		b = append(b, w...)
	}
	batches, tail, err := batch.Scan(nil, buf, b)
	if err != nil || tail != 0 || len(batches) != len(wires) {
		t.Fatalf("scan %d bytes: %d batches, tail %d, %v", size, len(batches), tail, err)
	}
	return batches
}

// setBase moves a batch in its log: the base offset lies outside the checksum.
func setBase(b batch.Batch, base int64) { binary.BigEndian.PutUint64(b.Bytes(), uint64(base)) }
