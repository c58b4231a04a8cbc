package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The demo is a test too: what it shows has to be so.
func TestDemo(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out, time.Second, false); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if s := out.String(); !strings.Contains(s, "in 5 codecs: the record sections are the same, byte for byte") {
		t.Fatalf("it ended with %q", s)
	}
}
