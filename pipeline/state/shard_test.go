package state

import "testing"

// These values are stored in every state topic: a change loses lanes.
func TestShardIsForEver(t *testing.T) {
	f := func(topic string, partition, want int32) {
		t.Helper()
		if got := Shard(topic, partition); got != want {
			t.Errorf("Shard(%q, %d) = %d, want %d", topic, partition, got, want)
		}
	}
	f("orders", 0, 44)
	f("orders", 1, 31)
	f("orders", 10, 29)
	f("orders1", 0, 31)
	f("payments.eu-west_1", 2147483647, 14)
	f("", 0, 13)
}

// Topics of few partitions and partitions of one topic both have to spread.
func TestShardSpreads(t *testing.T) {
	var seen [Shards]int
	for p := range int32(4800) {
		seen[Shard("orders", p)]++
	}
	for shard, n := range seen {
		if n < 50 || n > 200 {
			t.Errorf("shard %d has %d of 4800 lanes, want about 100", shard, n)
		}
	}
}
