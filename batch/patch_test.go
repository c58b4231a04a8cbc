package batch

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPatch holds a patched header against the one that kmsg writes for the batch it should be.
func TestPatch(t *testing.T) {
	for codec := None; codec <= Zstd; codec++ {
		for _, n := range []int{1, 2, 40, 1000} {
			for _, bits := range []int16{0, bitTransactional, bitLogAppendTime, bitDeleteHorizon, bitTransactional | bitLogAppendTime | bitDeleteHorizon, 1 << 7} {
				for _, id := range []Identity{{ProducerID: 1 << 40, Epoch: 12, Sequence: 1<<31 - 1}, {ProducerID: -1, Epoch: 5, Sequence: 5}, {}} {
					from := plain(t, codec, 1<<40, n)
					from.Attributes = int16(codec) | bits
					wire := sealed(from)
					before := bytes.Clone(wire)

					want := from
					want.FirstOffset, want.PartitionLeaderEpoch = 0, -1
					want.Attributes = int16(codec) | bits&(1<<7)
					want.ProducerID, want.ProducerEpoch, want.FirstSequence = id.ProducerID, id.Epoch, id.Sequence
					if id.ProducerID == -1 {
						want.ProducerEpoch, want.FirstSequence = -1, -1
					}

					var head Header
					Patch(&head, scanned(t, wire), id)
					if diff := cmp.Diff(sealed(want)[:HeaderSize], head[:]); diff != "" {
						t.Errorf("codec %s, %d records, bits %#x, %+v: header (-want +got):\n%s", codec, n, bits, id, diff)
					}
					if !bytes.Equal(wire, before) {
						t.Errorf("codec %s, %d records: the source's bytes were touched", codec, n)
					}
				}
			}
		}
	}
}
