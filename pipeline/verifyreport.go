package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kferry/pipeline/cluster"
)

// VerifyReport is what Verify found. It is equal if no link differs and none was left uncompared.
type VerifyReport struct {
	Headers bool           `json:"headers"` // checksums were trusted, not summed
	Links   []VerifiedLink `json:"links"`
}

// VerifiedLink is the comparison of one link. Differences and Uncompared stand in the order of topic, partition and offset.
type VerifiedLink struct {
	Name        string       `json:"name"`
	From        string       `json:"from"`
	To          string       `json:"to"`
	Stateless   bool         `json:"stateless"`  // nothing is stored of the link: whole logs were compared
	Partitions  int          `json:"partitions"` // compared, in whole or in part
	Batches     int64        `json:"batches"`    // pairs whose record sections are the same bytes
	Records     int64        `json:"records"`    // found equal
	ByRecord    int64        `json:"by_record"`  // of these, one by one, as their batches were not the same bytes
	Doubled     int64        `json:"doubled"`    // records that stand on the target once more
	Foreign     int64        `json:"foreign"`    // records of other writers on the target, passed over (onto_existing)
	Bytes       int64        `json:"bytes"`      // read, both sides together
	Differences []Difference `json:"differences"`
	Uncompared  []Span       `json:"uncompared"` // should have been compared and could not be
	Skipped     []Span       `json:"skipped"`    // cannot be compared any more: retention, a narrowed filter
}

// Kinds of a Difference.
const (
	DiffChanged = "changed" // a record is not what it is on the source
	DiffMissing = "missing" // records of the source are not on the target
	DiffExtra   = "extra"   // the target holds records of ours that the source does not
	DiffForeign = "foreign" // the target holds records that are not ours
	DiffDoubled = "doubled" // records stand on the target twice
	DiffDamaged = "damaged" // a batch does not match its checksum
)

// Difference is one place where the copy is not as its source. Offsets are -1 where one side has none.
type Difference struct {
	Topic     string `json:"topic"` // the source's name
	Partition int32  `json:"partition"`
	Target    string `json:"target"` // the target's topic
	SrcOffset int64  `json:"src_offset"`
	DstOffset int64  `json:"dst_offset"`
	Kind      string `json:"kind"`
	Text      string `json:"text"`
}

func (d Difference) String() string {
	var at []string
	if d.SrcOffset >= 0 {
		at = append(at, fmt.Sprintf("source offset %d", d.SrcOffset))
	}
	if d.DstOffset >= 0 {
		at = append(at, fmt.Sprintf("target offset %d", d.DstOffset))
	}
	return fmt.Sprintf("%s/%d to %s, %s: %s: %s", d.Topic, d.Partition, d.Target, strings.Join(at, ", "), d.Kind, d.Text)
}

// Span is a part of a link that was not compared, and why. Partition is -1 for a whole topic, Topic empty for the whole link.
type Span struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Text      string `json:"text"`
}

func (s Span) String() string {
	switch {
	case s.Topic == "":
		return s.Text
	case s.Partition < 0:
		return s.Topic + ": " + s.Text
	}
	return cluster.Place{Topic: s.Topic, Partition: s.Partition}.String() + ": " + s.Text
}

// Differs says whether anything is not as it should be.
func (r VerifyReport) Differs() bool {
	return slices.ContainsFunc(r.Links, func(l VerifiedLink) bool { return len(l.Differences) > 0 })
}

// Complete says whether all was compared that can be.
func (r VerifyReport) Complete() bool {
	return !slices.ContainsFunc(r.Links, func(l VerifiedLink) bool { return len(l.Uncompared) > 0 })
}

func (s Span) compare(o Span) int {
	return cmp.Or(cmp.Compare(s.Topic, o.Topic), cmp.Compare(s.Partition, o.Partition))
}
