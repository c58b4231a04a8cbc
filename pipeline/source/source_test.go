package source

import (
	"fmt"
	"testing"
)

// Every version of Fetch reads everything: without sessions, with them, by name and by id.
func TestVersions(t *testing.T) {
	for version := int16(firstFetch); version <= lastFetch; version++ {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			r := start(t, options(), versionsOf(version)...)
			ends := map[*tap]int64{}
			more := func(x *tap) {
				for i := range 10 {
					ends[x] = r.write(t, x.cursor.part.topic, x.cursor.part.number, i%3+1, 1000*i)
				}
			}
			for _, topic := range []string{"orders", "audit"} {
				for p := range int32(4) {
					x := r.open(t, topic, p)
					more(x)
					x.cursor.Ask()
				}
			}
			for range 3 {
				for x := range ends {
					x.reach(t, ends[x])
					x.cursor.Hold()
					more(x)
				}
				for x := range ends {
					x.cursor.Ask()
				}
			}
			for x, end := range ends {
				x.reach(t, end)
				if x.codes != nil {
					t.Errorf("codes %v", x.codes)
				}
			}
		})
	}
}
