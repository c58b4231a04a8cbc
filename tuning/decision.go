// Package tuning decides how much is asked for and how much is under way. It is pure: no clock, socket, log or metric.
package tuning

import "time"

// Decision is one set of values that the data plane follows. Today they are fixed at start; a controller may publish
// another one later.
type Decision struct {
	FetchBytes     int           // bytes asked for by one fetch (fetch.max.bytes), at most: FetchSizer finds what the path can use
	PartitionBytes int           // bytes asked for of one partition by one fetch
	FetchConns     int           // connections that fetch backlog from one source broker; quiet partitions have one more
	FetchWait      time.Duration // how long a fetch of quiet partitions may wait at the broker
	RequestBytes   int           // a Produce request is sent when it would exceed this
	BudgetBytes    int           // bytes under way on one target connection, at most: BudgetSizer finds what the path needs
	ProduceConns   int           // connections to one target broker
	LingerGap      time.Duration // a request that is not full follows the last one no sooner than this
	Depth          int           // batches under way of one lane
}

// Default gives the values for a process that may hold memory bytes of data. A fetch is at most a sixteenth of the
// memory, so that several connections can wait for an answer at once.
func Default(memory int64) Decision {
	const mib = 1 << 20
	share := int(min(max(memory/16, mib), 64*mib))
	return Decision{
		FetchBytes:     min(32*mib, share),
		PartitionBytes: mib / 2,
		FetchConns:     2,
		FetchWait:      250 * time.Millisecond,
		RequestBytes:   mib,
		BudgetBytes:    min(8*mib, share),
		ProduceConns:   2,
		LingerGap:      time.Millisecond,
		Depth:          128,
	}
}
