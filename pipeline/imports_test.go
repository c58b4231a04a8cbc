package pipeline

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImportsPointDown holds the house's order: a room imports only rooms below it. One alone imports codecs, and the
// data plane does not import that one: it cannot decode.
func TestImportsPointDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "kferry/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	// What each room may import of ours. Tests may import more: only the code is looked at.
	leaves := []string{"kferry/batch", "kferry/partitioner", "kferry/tuning"}
	low := append([]string{"kferry/pipeline/cluster"}, leaves...)
	allowed := map[string][]string{
		"kferry/batch":            nil,
		"kferry/batch/recode":     {"kferry/batch"},
		"kferry/partitioner":      nil,
		"kferry/tuning":           nil,
		"kferry/pipeline/cluster": leaves,
		"kferry/pipeline/lane":    low,
		"kferry/pipeline/source":  append([]string{"kferry/pipeline/lane"}, low...),
		"kferry/pipeline/sink":    append([]string{"kferry/pipeline/lane"}, low...),
		"kferry/pipeline/state":   low,
		"kferry/pipeline/control": append([]string{"kferry/pipeline/state"}, low...),
		"kferry/pipeline/admin":   low,
		"kferry/pipeline": append([]string{"kferry/pipeline/lane", "kferry/pipeline/source", "kferry/pipeline/sink",
			"kferry/pipeline/state", "kferry/pipeline/control", "kferry/pipeline/admin", "kferry/batch/recode"}, low...),
		"kferry/pipeline/kafkatest": nil,
	}
	codecs := []string{"github.com/klauspost/compress", "github.com/pierrec/lz4", "compress/"}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		room, imports := fields[0], fields[1:]
		may, known := allowed[room]
		for _, i := range imports {
			switch {
			case !strings.HasPrefix(i, "kferry/"):
				if room != "kferry/batch/recode" && slices.ContainsFunc(codecs, func(c string) bool { return strings.HasPrefix(i, c) }) {
					t.Errorf("%s imports the codec %s: batch/recode alone does", room, i)
				}
			case strings.HasPrefix(room, "kferry/cmd/") || strings.HasPrefix(room, "kferry/bench"):
				if strings.HasPrefix(i, "kferry/pipeline/e2e") {
					t.Errorf("%s imports %s", room, i)
				}
			case strings.HasPrefix(room, "kferry/pipeline/e2e"):
			case !known:
				t.Errorf("%s is not in the list of rooms: say what it may import", room)
			case !slices.Contains(may, i):
				t.Errorf("%s imports %s, which does not lie below it", room, i)
			}
		}
	}
}
