package kafkatest

import (
	"context"
	"os"
	"testing"
)

// Cure is how a machine gets what Available misses.
const Cure = "install a JDK 17 or later and Apache Maven (Debian: apt-get install openjdk-17-jdk-headless maven)"

// Need ends a test that wants real brokers where they cannot run: as failed if CI is true, else as skipped, with the
// reason and the cure.
func Need(t testing.TB) {
	t.Helper()
	ok, why := Available()
	switch {
	case ok:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s needs real Kafka, which CI has to have: %s; %s", t.Name(), why, Cure)
	default:
		t.Skipf("NOT RUN: %s needs real Kafka: %s; %s", t.Name(), why, Cure)
	}
}

// StartFor starts a Kafka that lives as long as the test, and prints the ends of its logs if the test fails.
func StartFor(t testing.TB, opts Options) *Kafka {
	t.Helper()
	Need(t)
	k, err := Start(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Tail())
		}
		k.Stop()
	})
	return k
}
