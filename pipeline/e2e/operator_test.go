package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"kferry/pipeline"
)

// TestOperator asks a running program what an operator and a monitoring system ask: readiness, metrics by their contract's
// names and labels, and `kferry status`.
func TestOperator(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "operator", 2)
	newNumbers(t, from, "operator", 2).write(10)
	addr := freeAddr(t)
	file := strings.Replace(yaml("operator", from.Bootstrap(), to.Bootstrap(), "operator"), `listen: ""`, fmt.Sprintf("listen: %q", addr), 1)
	p := launch(t, file, "run")
	waitFor(t, "readiness", func() bool { code, _ := get(addr, "/readyz"); return code == http.StatusOK })
	waitWritten(t, adminOf(t, to), "operatorsrc.operator", 20)
	if code, body := get(addr, "/healthz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}

	const lane = `{link="operatorsrc.operatordst",topic="operator",partition="1"}`
	waitFor(t, "metrics of all that was copied", func() bool {
		_, body := get(addr, "/metrics")
		return strings.Contains(body, "kferry_records_total"+lane+" 10\n") && strings.Contains(body, "kferry_lag_records"+lane+" 0\n")
	})
	_, body := get(addr, "/metrics")
	for _, want := range []string{
		"kferry_batches_total" + lane + " ",
		"kferry_bytes_total" + lane + " ",
		"kferry_lag_seconds" + lane + " 0\n",
		`kferry_lanes{link="operatorsrc.operatordst",state="running",reason=""} 2` + "\n",
		`kferry_lanes{link="operatorsrc.operatordst",state="parked",reason=""} 0` + "\n",
		"kferry_memory_bytes ",
	} {
		if !strings.Contains(body, "\n"+want) && !strings.HasPrefix(body, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(body)
	}

	out, err := exec.Command(kferry(t), "status", "--admin", addr, "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var s pipeline.Status
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(s.Links) != 1 || s.Links[0].Phase != "running" || s.Links[0].Records != 20 || s.Links[0].LagRecords != 0 || len(s.Links[0].Partitions) != 2 {
		t.Errorf("status --json: %s", out)
	}
	text, err := exec.Command(kferry(t), "status", "--admin", addr, "--all").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"link operatorsrc.operatordst: operatorsrc -> operatordst, running", "partitions: 2 running", "behind: 0 records",
		"copied: 20 records", "operator/1 -> operatorsrc.operator: running at 10 of 10"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("status lacks %q:\n%s", want, text)
		}
	}
	p.terminate()
	p.ends(0)
	if out, err := exec.Command(kferry(t), "status", "--admin", addr).CombinedOutput(); err == nil || !strings.Contains(string(out), "is kferry running there") {
		t.Errorf("status of a stopped kferry: %v, %s", err, out)
	}
}

// freeAddr is an address that nobody listens on now.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// get asks for a page; code is 0 where nobody answers.
func get(addr, path string) (code int, body string) {
	resp, err := http.Get("http://" + addr + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}
