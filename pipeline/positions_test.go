package pipeline

import (
	"context"
	"testing"
	"time"

	"kferry/pipeline/state"
)

// TestPositionsAreStoredWhileRunning: a position is in the state topic soon after it changed, while the link runs on, so
// that a crash doubles a second's worth and not all since the start.
func TestPositionsAreStoredWhileRunning(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 3)
	p.write(p.east, "orders", 3, 0, 3000)
	pl := p.pipeline(p.config(DefaultLink("east", "west")), Options{})
	defer pl.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- pl.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	waitStored(t, pl, 1000)
	p.write(p.east, "orders", 3, 3000, 1500)
	waitStored(t, pl, 1500)
}

// waitStored waits until all three partitions' stored positions are at next.
func waitStored(t *testing.T, pl *Pipeline, next int64) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		stored := make(map[int32]int64)
		reader, err := state.Open(t.Context(), state.Options{NewClient: pl.clusters["west"].NewClient, Alias: "east", ClusterID: "east", ReadOnly: true, Log: pl.log})
		if err == nil {
			for key, cp := range reader.Checkpoints() {
				if cp.SrcNext == next {
					stored[key.Partition] = next
				}
			}
			reader.Close()
		}
		if len(stored) == 3 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("stored at %d: %v, %v; the lanes are at %+v", next, stored, err, pl.Snapshot())
		}
		time.Sleep(50 * time.Millisecond)
	}
}
