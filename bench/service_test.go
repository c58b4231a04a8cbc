package bench

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMetricsAreSummedByName(t *testing.T) {
	got, err := parseMetrics("# HELP a b\n\na_total{x=\"1 {\"} 2\na_total{x=\"2\"} 3.5\nb 1e3\n")
	if err != nil || len(got) != 2 || got["a_total"] != 5.5 || got["b"] != 1000 {
		t.Errorf("%v, error %v", got, err)
	}
	for page, want := range map[string]string{
		"lonely":   `metric "lonely": no value`,
		"bad word": `metric "bad word": strconv.ParseFloat: parsing "word": invalid syntax`,
	} {
		if _, err := parseMetrics(page); err == nil || err.Error() != want {
			t.Errorf("%q: error %v, want %s", page, err, want)
		}
	}
}

// A kferry that ends instead of getting ready is an error with its own words.
func TestServiceThatEndsIsTold(t *testing.T) {
	h := testHost(t)
	h.Kferry = "/bin/false"
	_, err := h.serve(testContext(t), link{alias: "source", from: "127.0.0.1:1", to: "127.0.0.1:1", forever: true})
	if err == nil || !strings.HasPrefix(err.Error(), "kferry ended before it was ready: /bin/false: exit status 1") {
		t.Errorf("error %v", err)
	}
}

func TestMemoryOfAProcess(t *testing.T) {
	now, err := memory(os.Getpid(), "VmRSS")
	if err != nil {
		t.Fatal(err)
	}
	peak, err := memory(os.Getpid(), "VmHWM")
	if err != nil {
		t.Fatal(err)
	}
	if now < 1<<20 || peak < now/2 || peak > 1<<40 {
		t.Errorf("resident %d, at most %d", now, peak)
	}
	if _, err := memory(os.Getpid(), "VmNone"); err == nil || !strings.HasSuffix(err.Error(), "no VmNone in its status") {
		t.Errorf("unknown field: %v", err)
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration((i*77)%200+1)*time.Millisecond) // 1 to 200, shuffled
	}
	for percent, want := range map[int]float64{0: 1, 1: 2, 50: 100, 99: 198, 100: 200} {
		if got := percentile(all, percent); got != want {
			t.Errorf("p%d: %v, want %v", percent, got, want)
		}
	}
	if got := percentile([]time.Duration{time.Millisecond}, 50); got != 1 {
		t.Errorf("median of one: %v", got)
	}
}

// Nothing happens in the partitions: the watched process is there, small, and hardly works.
func TestIdleIsObserved(t *testing.T) {
	h := testHost(t)
	q := quiet{partitions: 50, settle: 10 * time.Millisecond, during: 1200 * time.Millisecond}
	for name, run := range map[string]func() (observed, error){
		"kferry":   func() (observed, error) { return h.idle(testContext(t), q) },
		"consumer": func() (observed, error) { return h.idleConsumer(testContext(t), q) },
	} {
		o, err := run()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if mb := resident(o); mb < 5 || mb > 500 || o.Wall < q.during || share(o) > 100 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// The target stops and goes on: all arrives once, or stuck says that it did not.
func TestStuckTargetIsSurvived(t *testing.T) {
	h := testHost(t)
	run, err := h.stuck(testContext(t), jam{haul{workload: largeBatches, partitions: 8, volume: 400e6}, 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if run.peak < 5<<20 || run.peak > 1<<30 || run.back <= 0 {
		t.Errorf("%+v, want a peak of some megabytes and some time", run)
	}
}

func TestAllocationsAreCounted(t *testing.T) {
	h := testHost(t)
	m, err := h.allocations(testContext(t), haul{workload: largeBatches, partitions: forwardPartitions, volume: 400e6})
	if err != nil {
		t.Fatal(err)
	}
	if m.bytes < 100e6 || m.bytes > 400e6 || m.batches < m.bytes/100e3 || m.allocated < m.mallocs {
		t.Errorf("%+v, want about 250 MB in batches of 66 kB", m)
	}
}

func TestLatencyBesideLoadIsMeasured(t *testing.T) {
	h := testHost(t)
	d, o, err := h.trickle(testContext(t), trickle{100, 300, 100, 5 * time.Millisecond}, &hot{partitions: 4, recordBytes: 1 << 10, perSecond: 500})
	if err != nil {
		t.Fatal(err)
	}
	if d.direct50 <= 0 || d.added50 <= 0 || d.added99 < d.added50 || o.Resident <= 0 || o.CPU <= 0 || o.Wall < time.Second {
		t.Errorf("%+v, %+v", d, o)
	}
}

func TestLatencyIsMeasured(t *testing.T) {
	h := testHost(t)
	d, err := h.latency(testContext(t), trickle{latencyPartitions, 300, 100, time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if d.direct50 <= 0 || d.direct99 < d.direct50 || d.added99 < d.added50 || d.added50 <= 0 {
		t.Errorf("%+v", d)
	}
}
