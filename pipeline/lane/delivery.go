package lane

import (
	"kferry/batch"
)

// Delivery is what one fetch response holds for one partition. Its slices are borrowed for the call of Deliver; the
// batches' references move to the lane.
type Delivery struct {
	Gen           uint32 // the cursor's generation when the fetch was sent; a seek makes a new one
	Code          int16  // Kafka error code of the partition; 0 is none
	Batches       []batch.Batch
	Aborted       []AbortedTxn // read_committed: transactions of this range that were aborted, in any order
	HighWatermark int64        // -1 with an error
	LastStable    int64        // last stable offset; the end of what read_committed may see
	LogStart      int64        // -1 when the broker is too old to say
	Needs         int64        // bytes of memory that the next batch takes, where that is more than there is; else 0
	Diverging     *Diverging   // the source's log no longer holds what we read (KIP-595 field of Fetch v12)
}

// AbortedTxn is one entry of a fetch response's aborted list.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64
}

// Diverging is where the source's log and what we read part.
type Diverging struct {
	Epoch     int32
	EndOffset int64
}

// Outcome says what became of an entry that the sink took.
type Outcome uint8

const (
	Acked  Outcome = iota // appended and replicated; Base is its offset on the target
	Failed                // the broker answered with Code
	Lost                  // the request was written and no answer came: it may have been appended
	Unsent                // it never left: certainly not appended
)

// Completion is the sink's one answer for one entry.
type Completion struct {
	Entry   *Entry
	Outcome Outcome
	Code    int16  // with Failed
	Message string // the broker's own words, with Failed, if it gave any
	Base    int64  // with Acked: base offset on the target, -1 if the broker did not say
}

// LookResult is what the target says about our last write, asked of the partition's leader by two witnesses.
type LookResult struct {
	End     int64 // high watermark by ListOffsets of the leader of the current epoch, asked before and after Last
	Known   bool  // the target holds producer state for (producer id, epoch)
	Epoch   int16 // the newest epoch that it knows of the producer id, -1 for none
	Last    int32 // its last sequence, -1 if it holds state without data
	Scanned bool  // the target's headers were scanned from the acked offset: Written and NextDst are exact
	Written int64 // with Scanned: records of ours at or after the acked sequence
	NextDst int64 // with Scanned: the offset behind our last record
}
