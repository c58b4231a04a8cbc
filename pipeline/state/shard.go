package state

import (
	"hash/fnv"
	"strconv"
)

// Shards is the partition count of every state topic. It is fixed for good:
// another count would move every lane away from its records.
const Shards = 48

// Shard returns the state partition, 0 to Shards-1, of the lane of a source
// partition: FNV-1a (32 bits) over the topic's name, a zero byte and the
// partition in decimal, modulo Shards. Never change it: records would be lost
// to their lanes.
func Shard(topic string, partition int32) int32 {
	h := fnv.New32a()
	h.Write([]byte(topic))
	h.Write([]byte{0})
	h.Write(strconv.AppendInt(nil, int64(partition), 10))
	return int32(h.Sum32() % Shards)
}
