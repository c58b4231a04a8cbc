package state

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// version is the version of every value that this program writes.
const version = 1

// Errors of a state record. Both come wrapped, with the record's topic,
// partition and offset.
var (
	// ErrRecord says that a record of a known kind cannot be understood.
	ErrRecord = errors.New("damaged state record")
	// ErrVersion says that a record was written by a newer kferry. Going on
	// without it would be a silent fresh start.
	ErrVersion = errors.New("state record of a newer kferry")
)

type kind string

const (
	kindCluster    kind = "cluster"
	kindLink       kind = "link"
	kindProducer   kind = "producer"
	kindStart      kind = "start"
	kindCheckpoint kind = "checkpoint"
)

// LaneKey names a lane: one source partition of one link. The source cluster's
// id belongs to the [Store]. TopicID is zero where the source has no topic ids.
type LaneKey struct {
	Link      string
	Topic     string
	TopicID   [16]byte
	Partition int32
}

func (k LaneKey) String() string { return fmt.Sprintf("%s %s/%d", k.Link, k.Topic, k.Partition) }

// Link is what is known of a link since its first start. First start and
// filter tell a topic that is new from one that the filter was widened onto.
type Link struct {
	FirstStart time.Time `json:"first_start"`
	Include    []string  `json:"include,omitempty"`
	Exclude    []string  `json:"exclude,omitempty"`
	Naming     string    `json:"naming"`
	Start      string    `json:"start"`
}

// Start is where a lane began: the resolved `start`, stored before the first
// batch. How says by which rule ("earliest", "latest", "zero", a time). Offsets
// are those of the first record copied and of its copy, in the topic Target
// (empty: not noted).
type Start struct {
	SrcStart int64     `json:"src_start"`
	DstStart int64     `json:"dst_start"`
	Target   string    `json:"target,omitempty"`
	How      string    `json:"how"`
	At       time.Time `json:"at"`
}

// Checkpoint is a lane's position: everything before SrcNext is on the target
// with acks=all, or was dropped by rule. The record at SrcNext gets sequence
// SeqNext under (PID, Epoch) and, for a sole writer, the target offset DstNext.
//
// Clean is true only after a drained stop: then nothing was sent beyond this
// position. Shared is true once another writer was seen in the target
// partition, so that its end offset proves nothing. LeaderEpoch is the source's
// at SrcNext-1, -1 if unknown. At is set by the Store.
type Checkpoint struct {
	SrcNext     int64     `json:"src_next"`
	SeqNext     int32     `json:"seq_next"`
	DstNext     int64     `json:"dst_next"`
	PID         int64     `json:"pid"`
	Epoch       int16     `json:"-"` // in the key
	LeaderEpoch int32     `json:"leader_epoch"`
	Clean       bool      `json:"clean"`
	Shared      bool      `json:"shared,omitempty"`
	At          time.Time `json:"at"`
}

func (p producerValue) check() error {
	if p.PID < 0 {
		return fmt.Errorf("%w: producer id %d", ErrRecord, p.PID)
	}
	return nil
}

func (s Start) check() error {
	if s.SrcStart < 0 || s.DstStart < 0 {
		return fmt.Errorf("%w: start at %d, %d", ErrRecord, s.SrcStart, s.DstStart)
	}
	return nil
}

func (a Checkpoint) check() error {
	if a.SrcNext < 0 || a.SeqNext < 0 || a.DstNext < 0 || a.PID < -1 || a.Epoch < 0 {
		return fmt.Errorf("%w: checkpoint src_next=%d seq_next=%d dst_next=%d pid=%d epoch=%d", ErrRecord, a.SrcNext, a.SeqNext, a.DstNext, a.PID, a.Epoch)
	}
	return nil
}

// same says whether writing b after a would tell a reader nothing new.
func (a Checkpoint) same(b Checkpoint) bool {
	a.At, b.At = time.Time{}, time.Time{}
	return a == b
}

// recordKey is the key of every kind. Compaction goes by its bytes, so the
// field order is part of the format.
type recordKey struct {
	Kind      kind   `json:"kind"`
	Link      string `json:"link,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	Residue   *int32 `json:"residue,omitempty"`
	Topic     string `json:"topic,omitempty"`
	TopicID   string `json:"topic_id,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	Epoch     *int16 `json:"epoch,omitempty"`
}

type clusterValue struct {
	Alias string `json:"alias"`
}

type producerValue struct {
	PID int64 `json:"pid"`
}

func laneRecordKey(k kind, cluster string, lane LaneKey) recordKey {
	key := recordKey{Kind: k, Link: lane.Link, Cluster: cluster, Topic: lane.Topic, Partition: &lane.Partition}
	if lane.TopicID != ([16]byte{}) {
		key.TopicID = base64.RawURLEncoding.EncodeToString(lane.TopicID[:])
	}
	return key
}

// lane returns the lane that a decoded key speaks of.
func (k recordKey) lane() (LaneKey, error) {
	if k.Link == "" || k.Topic == "" || k.Partition == nil || *k.Partition < 0 {
		return LaneKey{}, fmt.Errorf("%w: a %s needs link, topic and partition", ErrRecord, k.Kind)
	}
	lane := LaneKey{Link: k.Link, Topic: k.Topic, Partition: *k.Partition}
	if k.TopicID != "" {
		id, err := base64.RawURLEncoding.Strict().DecodeString(k.TopicID)
		if err != nil || len(id) != len(lane.TopicID) {
			return LaneKey{}, fmt.Errorf("%w: topic id %q", ErrRecord, k.TopicID)
		}
		copy(lane.TopicID[:], id)
	}
	return lane, nil
}

// partition returns the state partition that holds the record.
func (k recordKey) partition() int32 {
	if k.Partition == nil {
		return 0
	}
	return Shard(k.Topic, *k.Partition)
}

func (k recordKey) encode() []byte { return encode(k) }

// encodeValue writes a value with its version in front, where people look. What
// no later start could read is never written.
func encodeValue(v any) []byte {
	if c, ok := v.(interface{ check() error }); ok {
		if err := c.check(); err != nil {
			panic("BUG: write of a " + err.Error())
		}
	}
	return append(fmt.Appendf(nil, `{"v":%d,`, version), encode(v)[1:]...)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: state record does not encode: " + err.Error())
	}
	return b
}

// decodeKey decodes a record's key. What is not JSON with a kind was not
// written by any kferry.
func decodeKey(b []byte) (recordKey, error) {
	var k recordKey
	if err := json.Unmarshal(b, &k); err != nil {
		// A newer kind may give a field another type: its kind decides.
		var only struct {
			Kind kind `json:"kind"`
		}
		if json.Unmarshal(b, &only) == nil && only.Kind != "" && !only.Kind.known() {
			return recordKey{Kind: only.Kind}, nil
		}
		return recordKey{}, fmt.Errorf("%w: key: %v", ErrRecord, err)
	}
	if k.Kind == "" {
		return recordKey{}, fmt.Errorf("%w: key without a kind", ErrRecord)
	}
	return k, nil
}

func (k kind) known() bool {
	switch k {
	case kindCluster, kindLink, kindProducer, kindStart, kindCheckpoint:
		return true
	}
	return false
}

// decodeValue decodes the value of a known kind into v, a pointer to its type.
// A field that is needed and missing is damage: read as 0 it would be a
// position.
func decodeValue(b []byte, v any, needed ...string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return fmt.Errorf("%w: value: %v", ErrRecord, err)
	}
	var got int
	if err := json.Unmarshal(fields["v"], &got); err != nil || got < 1 {
		return fmt.Errorf("%w: value without a version", ErrRecord)
	}
	if got > version {
		return fmt.Errorf("%w: version %d, this one knows %d: run the newer kferry", ErrVersion, got, version)
	}
	for _, name := range needed {
		if f := fields[name]; f == nil || string(f) == "null" {
			return fmt.Errorf("%w: value without %s", ErrRecord, name)
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: value: %v", ErrRecord, err)
	}
	return nil
}
