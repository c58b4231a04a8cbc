package pipeline

import (
	"errors"
	"strings"
	"testing"

	"kferry/partitioner"
)

// TestRenamedTargetParks: a position is one in the target topic that it was written to. Under another naming the name may
// be that of a topic with records of its own, which a link without a position would have refused.
func TestRenamedTargetParks(t *testing.T) {
	p := newTwins(t)
	p.topic(p.east, "orders", 1)
	p.topic(p.west, "orders", 1)
	p.write(p.east, "orders", 1, 0, 100)
	p.write(p.west, "orders", 1, 5000, 300)
	cfg := p.config(DefaultLink("east", "west"))
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	cfg.Links[0].Naming.Kind = partitioner.Identity
	for _, more := range []int{0, 50} { // also with nothing new: all of it is missing there
		p.write(p.east, "orders", 1, 100, more)
		err := p.run(cfg, Options{UntilCaughtUp: true})
		var stuck *Stuck
		if !errors.As(err, &stuck) || len(stuck.Lanes) != 1 ||
			!strings.Contains(stuck.Lanes[0], "east.west orders/0: target-lost (it was copied to east.orders so far, alias and naming now make that orders:") {
			t.Fatalf("after %d more records: %v", more, err)
		}
	}
	if n := len(p.read(p.west, "orders")[0]); n != 300 {
		t.Errorf("the other topic has %d records, want its own 300", n)
	}
	cfg.Links[0].Naming.Kind = partitioner.Prefix
	if err := p.run(cfg, Options{UntilCaughtUp: true}); err != nil {
		t.Fatal(err)
	}
	p.same("orders", "east.orders")
}
