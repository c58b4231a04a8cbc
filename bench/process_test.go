package bench

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

func testHost(t *testing.T) *Host {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kferry, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return &Host{Self: []string{self, "role"}, Kferry: kferry, Dir: t.TempDir(), Progress: t.Output()}
}

// The rivals are measured as processes: their CPU time is theirs, and all that was sent arrived.
func TestRivalsAreMeasured(t *testing.T) {
	h := testHost(t)
	const volume, records = int64(200e6), int64(20_000)
	large := haul{workload: largeBatches, partitions: forwardPartitions, volume: volume}
	small := haul{workload: smallRecords, partitions: forwardPartitions}
	costs, err := alternate(testContext(t), 1, h.Progress,
		subject{"relay", func(ctx context.Context) (Cost, error) { return h.relay(ctx, relaySmall, large) }},
		subject{"kgo-loop", func(ctx context.Context) (Cost, error) { return h.loop(ctx, small, records) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range costs[0] {
		if ns := perByte(c); c.Bytes != volume || ns < 0.05 || ns > 20 {
			t.Errorf("relay: %d bytes at %.3f ns each, want %d at something between 0.05 and 20", c.Bytes, ns, volume)
		}
	}
	for _, c := range costs[1] {
		if ns := perRecord(c); c.Records < records/2 || ns < 100 || ns > 100_000 {
			t.Errorf("loop: %d records at %.0f ns each, want about %d at something between 100 and 100,000", c.Records, ns, records)
		}
	}
}

// A process that fails is an error with its own words, not a figure.
func TestFailureOfAProcessIsTold(t *testing.T) {
	h := testHost(t)
	ctx := testContext(t)
	name, args, err := h.role(roleRelay, RelayConfig{From: "127.0.0.1:1", To: "127.0.0.1:1", Bytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.measure(ctx, name, args...); err == nil || !strings.HasSuffix(err.Error(), "exit status 1\ndial tcp 127.0.0.1:1: connect: connection refused\n") {
		t.Errorf("relay to nowhere: %v", err)
	}
	if _, err := h.start(ctx, "juggler", nil); err == nil || !strings.Contains(err.Error(), `role "juggler": unknown`) {
		t.Errorf("unknown role: %v", err)
	}
	h.Kferry = "/bin/false"
	if _, err := h.forward(ctx, haul{workload: largeBatches, partitions: 1, volume: 1e6}); err == nil || err.Error() != "/bin/false: exit status 1\n" {
		t.Errorf("failing kferry: %v", err)
	}
	h.Kferry = "/bin/true" // ends well and has moved nothing
	h.Settle = 100 * time.Millisecond
	if _, err := h.forward(ctx, haul{workload: largeBatches, partitions: 1, volume: 1e6}); err == nil || !strings.HasPrefix(err.Error(), "target holds 0 records, 0 bytes") {
		t.Errorf("kferry that forwards nothing: %v", err)
	}
}

// kferry itself runs between the ends: built from this tree, every record taken once.
func TestForwardMeasuresKferry(t *testing.T) {
	h := testHost(t)
	security, err := newCertificate(h.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		haul    haul
		records int64
	}{
		"large batches":  {haul{largeBatches, forwardPartitions, 50e6, nil}, 80_000},
		"small records":  {haul{smallRecords, forwardPartitions, 50e6, nil}, 80_000},
		"tiny batches":   {haul{tinyBatches, tinyPartitions, 5e6, nil}, 40_000},
		"TLS both sides": {haul{largeBatches, forwardPartitions, 50e6, security}, 80_000},
	} {
		cost, err := h.forward(testContext(t), c.haul)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if cost.Bytes < c.haul.volume*8/10 || cost.Records < c.records || cost.Batches < 100 || cost.CPU <= 0 || cost.Wall <= 0 {
			t.Errorf("%s: %+v, want about %d bytes, at least %d records and some time", name, cost, c.haul.volume, c.records)
		}
	}
}
