package lane

import "kferry/batch"

// ActionKind names what the shell is asked to do.
type ActionKind uint8

const (
	Send      ActionKind = iota // hand Entry to the stream; one Completion will answer
	OpenSink                    // bind the lane to its leader's connection anew
	CloseSink                   // give the stream up; what it has not written comes back Unsent
	Look                        // ask the target what it holds for Identity; Scan from the acked offset if Scan is set
	Seek                        // read from Src under Gen; SrcEpoch is the leader epoch of what was read before it
	Ask                         // fetch again
	Hold                        // fetch no more
	Bounds                      // ask the source for log start and end: SourceBounds answers
	Recode                      // re-encode Batch by Plan: Recoded answers with Ticket. Its reference moves
	Save                        // the position must be stored before anything else is sent: Saved answers
	Report                      // Text is for the log; Loss, if set, is for the ledger
)

// Action is one thing for the shell to do.
type Action struct {
	Kind   ActionKind
	Entry  *Entry
	Batch  batch.Batch
	Plan   Plan
	Ticket uint32
	Src    int64
	Epoch  int32
	Gen    uint32
	Scan   bool
	Text   string
	Bad    bool // Report: an operator has to act
}
