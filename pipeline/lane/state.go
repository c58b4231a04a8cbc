package lane

import "kferry/pipeline/cluster"

// State is where a lane stands; it is the label `state` of kferry_lanes.
type State uint8

const (
	Starting    State = iota // waits for its target and its first stream
	Running                  // batches flow
	Doubt                    // something was sent and not answered well: look, never guess
	Parked                   // cannot go on; Reason says why; tried again by itself
	Paused                   // by an operator
	HandingOver              // no new batch is sent; waits for what is in flight
	Stopped                  // ended; holds nothing
)

// States lists all states in the order of their numbers.
func States() []State {
	return []State{Starting, Running, Doubt, Parked, Paused, HandingOver, Stopped}
}

func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Doubt:
		return "doubt"
	case Parked:
		return "parked"
	case Paused:
		return "paused"
	case HandingOver:
		return "handing-over"
	case Stopped:
		return "stopped"
	}
	return "unknown"
}

// Reason names why a lane is in doubt or parked; it is the label `reason` of kferry_lanes.
type Reason string

// The reasons. ReasonTable has a sentence and a cure for each.
const (
	NoReason          Reason = ""
	UndecodedReason   Reason = "not-decodable"
	CorruptReason     Reason = "corrupt-batch"
	OverlapReason     Reason = "overlapping-batch"
	MemoryReason      Reason = "memory-too-small"
	TooLargeReason    Reason = "too-large"
	TimestampReason   Reason = "timestamp-refused"
	RecordReason      Reason = "record-refused"
	CodecReason       Reason = "codec-refused"
	TargetDenied      Reason = "target-denied"
	SourceDenied      Reason = "source-denied"
	RecreatedReason   Reason = "source-recreated"
	TruncatedReason   Reason = "source-truncated"
	SourceGoneReason  Reason = "source-gone"
	TargetLostReason  Reason = "target-lost"
	FormatReason      Reason = "target-format"
	EpochsReason      Reason = "epochs-used-up"
	FencedReason      Reason = "fenced"
	RefusedReason     Reason = "refused"
	SourceErrorReason Reason = "source-error"
	LostAnswerReason  Reason = "lost-answer"
	ErrorAnswerReason Reason = "error-answer"
	LookFailedReason  Reason = "target-not-answering"
	BehindReason      Reason = "replicas-behind"
)

// ReasonInfo is one row of the table in docs/metrics.md.
type ReasonInfo struct {
	Reason Reason
	State  State // the state it comes with
	What   string
	Cure   string
}

// ReasonTable lists every reason; docs/metrics.md is checked against it.
func ReasonTable() []ReasonInfo {
	return []ReasonInfo{
		{UndecodedReason, Parked, "the batch has to be re-encoded and cannot be decoded", "the log line says why: records that are damaged or larger than the limit for decoding, or an unknown compression; read the batch with another client, then skip or exclude it"},
		{CorruptReason, Parked, "the batch's checksum does not match its bytes", "check the source's disk; a replica with a sound copy heals it when it leads"},
		{OverlapReason, Parked, "a batch starts before the offset that was expected next", "the source's log changed under us: verify, then start again"},
		{MemoryReason, Parked, "a batch takes more memory than kferry may use", "raise memory in the configuration above the bytes that the detail names, and restart"},
		{TooLargeReason, Parked, "a record is larger than the target topic takes, or a batch is and the topic's configuration cannot be read", "raise max.message.bytes of the target topic to the source's"},
		{TimestampReason, Parked, "the target topic refuses the records' timestamps", "set message.timestamp.before.max.ms and message.timestamp.after.max.ms of the target topic to 9223372036854775807"},
		{RecordReason, Parked, "the target refuses a record of the batch", "often a record without key for a compacted topic: set cleanup.policy of the target topic to the source's"},
		{CodecReason, Parked, "the target takes none of the compressions that kferry knows", "upgrade the target, or exclude the topic"},
		{TargetDenied, Parked, "kferry may not write the target topic", "grant WRITE on the topic to kferry's principal on the target"},
		{SourceDenied, Parked, "kferry may not read the source topic", "grant READ on the topic to kferry's principal on the source"},
		{RecreatedReason, Parked, "the source topic was deleted and created again", "decide; docs/operations.md says how to start a topic anew"},
		{TruncatedReason, Parked, "the source's log was cut below what was already copied", "the target holds records that the source lost: compare, then decide"},
		{SourceGoneReason, Parked, "the source partition does not exist any more", "nothing to do if the topic was deleted on purpose"},
		{TargetLostReason, Parked, "the target partition is shorter than what was written to it, or its topic is another one", "the target was rebuilt or truncated: compare, then decide"},
		{FormatReason, Parked, "the target topic has an old message format, which refuses producer ids", "set message.format.version of the target topic to 0.11 or later"},
		{EpochsReason, Parked, "the lane's producer epochs are used up", "give the link a new name: it takes a new producer id; see docs/operations.md on starting a topic anew"},
		{FencedReason, Parked, "another kferry writes this partition under a newer epoch", "run one instance per link: stop the other one, then restart this one"},
		{RefusedReason, Parked, "the target refused the batch for good", "the log line holds the broker's own words"},
		{SourceErrorReason, Parked, "the source answers with an error that does not pass", "the log line holds the broker's error"},
		{LostAnswerReason, Doubt, "a request went out and its answer was lost", "none: resolved by asking the target what it holds"},
		{ErrorAnswerReason, Doubt, "the target answered with an error that leaves open whether it appended", "none: resolved by asking the target what it holds"},
		{LookFailedReason, Doubt, "the target partition's leader does not answer", "check the target; kferry goes on asking"},
		{BehindReason, Doubt, "the target's replicas have not yet confirmed what its leader holds", "check the target's in-sync replicas; kferry goes on asking"},
	}
}

// refusal gives the reason to park with for an error code of Produce that Classify calls Park.
func refusal(code int16) Reason {
	switch code {
	case 2: // CORRUPT_MESSAGE
		return CorruptReason
	case 10, 18: // MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE
		return TooLargeReason
	case 32: // INVALID_TIMESTAMP
		return TimestampReason
	case 87: // INVALID_RECORD
		return RecordReason
	case 76: // UNSUPPORTED_COMPRESSION_TYPE
		return CodecReason
	case 29, 53: // TOPIC_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
		return TargetDenied
	case 43: // UNSUPPORTED_FOR_MESSAGE_FORMAT
		return FormatReason
	}
	return RefusedReason
}

// refused says whether an answer to Produce means: not appended, and the same bytes will never be. A topic id that a
// broker does not know yet, or not any more, is no refusal: the look-up tells a new topic from a lost one.
func refused(code int16) bool {
	if code == 100 || code == 103 { // UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
		return false
	}
	c := cluster.Classify(code)
	return c == cluster.Park || c == cluster.Stop
}

// final reasons are not tried again by the lane itself: time does not heal them.
func (r Reason) final() bool {
	switch r {
	case TargetLostReason, RecreatedReason, TruncatedReason, EpochsReason, FencedReason, OverlapReason:
		return true
	}
	return false
}

// Info gives the reason's row of ReasonTable.
func (r Reason) Info() ReasonInfo {
	if r == NoReason { // the most lanes, and a status asks for each
		return ReasonInfo{}
	}
	for _, i := range ReasonTable() {
		if i.Reason == r {
			return i
		}
	}
	return ReasonInfo{Reason: r}
}
