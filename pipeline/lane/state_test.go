package lane

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kferry/pipeline/cluster"
)

// reasons reads the constants of type Reason out of the source, so that none is forgotten.
func reasons(t *testing.T) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != "Reason" {
			return true
		}
		for _, v := range spec.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Reason(text))
		}
		return true
	})
	return all
}

func TestReasonTable(t *testing.T) {
	all := reasons(t)
	if len(all) < 20 || !slices.Contains(all, NoReason) {
		t.Fatalf("state.go holds only the reasons %q", all)
	}
	all = slices.DeleteFunc(all, func(r Reason) bool { return r == NoReason })
	var rows []Reason
	for _, row := range ReasonTable() {
		rows = append(rows, row.Reason)
		if row.State != Parked && row.State != Doubt {
			t.Errorf("%s comes with %s", row.Reason, row.State)
		}
		if row.What == "" || row.Cure == "" {
			t.Errorf("%s has no sentence or no cure", row.Reason)
		}
		if row.Reason.Info() != row {
			t.Errorf("Info of %s is %+v", row.Reason, row.Reason.Info())
		}
		if strings.ToLower(string(row.Reason)) != string(row.Reason) || strings.ContainsAny(string(row.Reason), " _") {
			t.Errorf("%q is no label", row.Reason)
		}
	}
	slices.Sort(all)
	slices.Sort(rows)
	if diff := cmp.Diff(all, rows); diff != "" {
		t.Errorf("rows of ReasonTable (-constants +rows):\n%s", diff)
	}
}

func TestStateLabels(t *testing.T) {
	var got []string
	for i, s := range States() {
		if int(s) != i {
			t.Errorf("state %d stands at %d", s, i)
		}
		got = append(got, s.String())
	}
	want := []string{"starting", "running", "doubt", "parked", "paused", "handing-over", "stopped"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if s := State(len(want)).String(); s != "unknown" {
		t.Errorf("a state too many is called %q", s)
	}
}

// Every code that says "not appended, and never will be" parks with a reason of the table; no other code does.
func TestRefusals(t *testing.T) {
	for code := int16(-1); code < 200; code++ {
		class := cluster.Classify(code)
		idTrouble := code == 100 || code == 103 // a new topic's id may not be known everywhere yet: the look-up decides
		if got, want := refused(code), (class == cluster.Park || class == cluster.Stop) && !idTrouble; got != want {
			t.Errorf("refused(%d) = %t, it is of class %s", code, got, class)
		}
		if r := refusal(code); r.Info().What == "" || r.Info().State != Parked {
			t.Errorf("code %d parks with %q", code, r)
		}
	}
	for code, want := range map[int16]Reason{
		2: CorruptReason, 10: TooLargeReason, 18: TooLargeReason, 29: TargetDenied, 32: TimestampReason, 43: FormatReason, 53: TargetDenied,
		76: CodecReason, 87: RecordReason, 17: RefusedReason,
	} {
		if got := refusal(code); got != want {
			t.Errorf("%s parks with %q, want %q", cluster.CodeName(code), got, want)
		}
	}
}
