package kafkatest_test

import (
	"fmt"
	"testing"

	"kferry/pipeline/kafkatest"
)

// TestRealKafkaRuns is the line that `make test` shows where real Kafka cannot run: go test hides the reasons of single
// skipped tests.
func TestRealKafkaRuns(t *testing.T) {
	if ok, why := kafkatest.Available(); !ok {
		t.Logf("NOT RUN: the tests of pipeline/e2e, and TestKafka, TestOlderKafka and TestThreeBrokers of pipeline/kafkatest, need real Kafka: %s; %s", why, kafkatest.Cure)
	}
	kafkatest.Need(t)
}

// end is what a test would have ended with.
type end struct {
	testing.TB
	how, why string
}

func (e *end) Helper()                      {}
func (e *end) Name() string                 { return "TestX" }
func (e *end) Fatalf(f string, args ...any) { e.how, e.why = "failed", fmt.Sprintf(f, args...) }
func (e *end) Skipf(f string, args ...any)  { e.how, e.why = "skipped", fmt.Sprintf(f, args...) }

func TestNeedIsLoud(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for ci, want := range map[string]end{
		"true": {how: "failed", why: "TestX needs real Kafka, which CI has to have: java is not on the PATH; " + kafkatest.Cure},
		"":     {how: "skipped", why: "NOT RUN: TestX needs real Kafka: java is not on the PATH; " + kafkatest.Cure},
	} {
		t.Setenv("CI", ci)
		var got end
		kafkatest.Need(&got)
		if got.how != want.how || got.why != want.why {
			t.Errorf("CI=%s: %s: %s\nwant %s: %s", ci, got.how, got.why, want.how, want.why)
		}
	}
}
