package e2e

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kferry/pipeline/kafkatest"
)

// A bit that flips on the source's disk stays visible: the checksum is carried over, not made anew, so the target refuses the
// batch. What lies before it is copied; the lane parks in front of it and names the place.
func TestDamageOnDisk(t *testing.T) {
	kafkatest.Need(t)
	from, err := kafkatest.Start(t.Context(), kafkatest.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Stop)
	to := west(t)
	topic := name("damaged")
	create(t, from, topic, 1)
	n := newNumbers(t, from, topic, 1)
	for range 3 {
		n.write(10) // a batch each, at least
	}
	batches, err := kafkatest.RawBatches(t.Context(), from.Bootstrap(), topic, 0)
	if err != nil || len(batches) < 3 {
		t.Fatalf("%d batches, %v", len(batches), err)
	}
	damaged := len(batches) - 1
	offset := int64(binary.BigEndian.Uint64(batches[damaged]))

	from.Broker(1).Stop() // in good order: a broker that was killed reads its log again, and would cut it at the damage
	flip(t, from.Dir(), topic, batches[damaged])
	if err := from.Broker(1).Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	cfg := config(from, to, "damaged", topic)
	status, err := try(t, cfg)
	if err == nil || !strings.Contains(err.Error(), "corrupt-batch") {
		t.Fatalf("the job ended with %v", err)
	}
	lane := status.Links[0].Partitions[0]
	if lane.SrcOffset != offset || lane.DstOffset != offset || !strings.Contains(lane.Detail, "CORRUPT_MESSAGE") {
		t.Fatalf("the batch at %d is damaged, and the lane stands at %+v", offset, lane)
	}
	copied, err := kafkatest.RawBatches(t.Context(), to.Bootstrap(), alias(cfg)+"."+topic, 0)
	if err != nil || len(copied) != damaged {
		t.Fatalf("%d batches on the target, want the %d before the damage; %v", len(copied), damaged, err)
	}
}

// flip changes one bit of a batch's record section in its segment file.
func flip(t *testing.T, dir, topic string, batch []byte) {
	t.Helper()
	done := false
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".log") || filepath.Base(filepath.Dir(path)) != topic+"-0" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at := strings.Index(string(b), string(batch))
		if at < 0 {
			return nil
		}
		b[at+len(batch)-3] ^= 0x10
		done = true
		return os.WriteFile(path, b, 0o644)
	})
	if err != nil || !done {
		t.Fatalf("the batch was not found in the broker's log: %v", err)
	}
}
