package partitioner

import "fmt"

// Mapper says which target partition a source partition goes to: the one with the same number.
type Mapper struct {
	partitions int32 // of the target
}

// NewMapper takes the partition counts of a topic on both sides. A target with fewer partitions than the source is an error that
// names the choices: partitions are never piled up in silence.
func NewMapper(topic string, source, target int32) (Mapper, error) {
	if target < source {
		return Mapper{}, fmt.Errorf("topic %q has %d partitions on the source and %d on the target: "+
			"give the target topic at least %d partitions, write to another topic (naming: rename), or exclude it",
			topic, source, target, source)
	}
	return Mapper{partitions: target}, nil
}

// Target gives the target partition of a source partition. It is false for a partition that the target does not have yet.
func (m Mapper) Target(partition int32) (int32, bool) {
	return partition, partition >= 0 && partition < m.partitions
}
