package lane

// Position is one point of the copy.
type Position struct {
	Src      int64 // next source offset
	SrcEpoch int32 // leader epoch of the batch before it, -1 unknown: with it the source notices that its log was cut
	Dst      int64 // next offset on the target, where only we write
	Seq      int64 // records written since the producer epoch began
}

// Counts are what a lane did since it was made. All but Dropped count at the ack.
type Counts struct {
	Records, Batches, Bytes int64
	Dropped                 [3]int64              // by Drop
	Recoded                 [RecodedReasons]int64 // batches, by Recoded
	Resent                  int64                 // entries sent more than once
	Looks                   int64                 // look-ups asked of the target
	Doubled                 int64                 // records that may stand twice on the target
	Skipped                 int64                 // source offsets that retention took before we read them
	Foreign                 int64                 // acks whose base offset was not the expected one
}

// Drop says why a batch was not forwarded.
type Drop uint8

const (
	DropControl Drop = iota
	DropAborted
	DropEmpty
)

func (d Drop) String() string { return [...]string{"control", "aborted", "empty"}[d] }
