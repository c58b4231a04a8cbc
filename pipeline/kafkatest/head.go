package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
)

// Head is what a batch's header says, read by hand, so that a test does not trust what it tests. Of the message formats 0
// and 1 it is one message, or the wrapper of compressed ones; their fields that version 2 brought are then zero.
type Head struct {
	Offset, LastOffset int64 // of a message of format 0 or 1, and of a wrapper, both are its own: a wrapper's is its last message's
	Magic              int8
	Attributes         int16
	LastDelta          int32
	MaxTimestamp       int64 // milliseconds
	PID                int64
	Epoch              int16
	Sequence           int32
	Count              int32
}

// Bits of Attributes; those of formats 0 and 1 end with LogAppendTime.
const (
	CodecBits     = 7
	LogAppendTime = 1 << 3
	Transactional = 1 << 4
	Control       = 1 << 5
	DeleteHorizon = 1 << 6 // KIP-534, from Kafka 3.1 on
)

// Codec is the batch's compression: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.
func (h Head) Codec() int { return int(h.Attributes & CodecBits) }

// Holed tells whether records are missing between the batch's first and last offset; an empty batch is not called that.
func (h Head) Holed() bool { return h.Magic == 2 && h.Count > 0 && h.Count != h.LastDelta+1 }

// Empty tells whether compaction left only the header.
func (h Head) Empty() bool { return h.Magic == 2 && h.Count == 0 }

// Heads lists the headers of all batches in a partition's log, from its start to its high watermark. If the log start lies
// inside of a batch, that batch comes first.
func Heads(ctx context.Context, k *Kafka, topic string, partition int32) ([]Head, error) {
	raw, err := RawBatches(ctx, k.Bootstrap(), topic, partition)
	if err != nil {
		return nil, err
	}
	var all []Head
	for i, b := range raw {
		h := Head{Offset: int64(binary.BigEndian.Uint64(b)), LastOffset: lastOffset(b), Magic: int8(b[magicAt])}
		switch {
		case h.Magic < 2:
			h.Attributes = int16(b[magicAt+1])
		case len(b) < 61:
			return nil, fmt.Errorf("batch %d of %s/%d has %d bytes, less than a header", i, topic, partition, len(b))
		default:
			h.Attributes = int16(binary.BigEndian.Uint16(b[21:]))
			h.LastDelta = int32(binary.BigEndian.Uint32(b[lastOffsetDeltaAt:]))
			h.MaxTimestamp = int64(binary.BigEndian.Uint64(b[35:]))
			h.PID = int64(binary.BigEndian.Uint64(b[43:]))
			h.Epoch = int16(binary.BigEndian.Uint16(b[51:]))
			h.Sequence = int32(binary.BigEndian.Uint32(b[53:]))
			h.Count = int32(binary.BigEndian.Uint32(b[57:]))
		}
		all = append(all, h)
	}
	return all, nil
}
