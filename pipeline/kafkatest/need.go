package kafkatest

import (
	"context"
	"os"
	"testing"
)

// Need ends a test that wants real brokers where they cannot run: as a failure if CI is true, else as skipped, with the
// reason and the cure.
func Need(t testing.TB) {
	t.Helper()
	ok, why := Available()
	if ok {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s needs real Kafka, and CI has to have it: %s", t.Name(), why)
	}
	t.Skipf("NOT RUN: %s needs real Kafka: %s. Install a JDK 17 or later and Apache Maven (Debian: apt-get install openjdk-17-jdk-headless maven).", t.Name(), why)
}

// StartFor starts a Kafka that lives as long as the test, and prints the brokers' logs if the test fails.
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
