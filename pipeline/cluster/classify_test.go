package cluster

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Every code of kerr has a row of its own; the rows are the golden file. A code that kerr learns later fails here until it is judged.
func TestClassify(t *testing.T) {
	var rows strings.Builder
	seen := 0
	for code := int16(-1); code < 1000; code++ {
		known := code == 0 || kerr.ErrorForCode(code) != kerr.UnknownServerError || code == -1
		class, ok := classes[code]
		if known != ok {
			t.Errorf("code %d (%s): known to kerr %v, in the table %v", code, CodeName(code), known, ok)
		}
		if ok {
			seen++
			fmt.Fprintf(&rows, "%4d  %-8s %s\n", code, class, CodeName(code))
		} else if Classify(code) != Doubt {
			t.Errorf("unknown code %d is %v", code, Classify(code))
		}
	}
	if seen != len(classes) {
		t.Errorf("%d codes in the table, %d in -1..999", len(classes), seen)
	}
	golden := filepath.Join("testdata", "classes.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(rows.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), rows.String()); d != "" {
		t.Fatal(d)
	}
}

func TestClassNames(t *testing.T) {
	f := func(class Class, want string) {
		t.Helper()
		if got := class.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f(OK, "ok")
	f(Retry, "retry")
	f(Refresh, "refresh")
	f(Doubt, "doubt")
	f(Park, "park")
	f(Stop, "stop")
	f(9, "class(9)")
	if got := CodeName(0) + " " + CodeName(6) + " " + CodeName(-1) + " " + CodeName(999); got != "NONE NOT_LEADER_FOR_PARTITION UNKNOWN_SERVER_ERROR unknown error code 999" {
		t.Errorf("got %s", got)
	}
}

// What a lane parks on has a cure of its own where the reason is data, rights or settings of the topic; all others name the broker's log.
func TestCure(t *testing.T) {
	for code := range cures {
		if class := Classify(code); class != Park {
			t.Errorf("a cure for %s, which is %v", CodeName(code), class)
		}
	}
	if got, want := Cure(10), "raise max.message.bytes of the target topic to the source topic's value"; got != want {
		t.Errorf("got %q", got)
	}
	if got, want := Cure(4), "look for INVALID_FETCH_SIZE in the broker's log"; got != want {
		t.Errorf("got %q", got)
	}
}
