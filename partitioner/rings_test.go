package partitioner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// hop reads "east>west identity include... !exclude...", with _ for another separator and a=b for a rename.
func hop(t *testing.T, text string) Hop {
	t.Helper()
	words := strings.Fields(text)
	h := Hop{Separator: "."}
	h.From, h.To, _ = strings.Cut(words[0], ">")
	kind, separator, ok := strings.Cut(words[1], ":")
	h.Naming.Kind = NamingKind(kind)
	if ok {
		h.Separator = separator
	}
	var include, exclude []string
	for _, w := range words[2:] {
		if from, to, ok := strings.Cut(w, "="); ok && kind == "rename" {
			if h.Naming.Rename == nil {
				h.Naming.Rename = map[string]string{}
			}
			h.Naming.Rename[from] = to
		} else if x, ok := strings.CutPrefix(w, "!"); ok {
			exclude = append(exclude, x)
		} else {
			include = append(include, w)
		}
	}
	var err error
	if h.Filter, err = NewFilter(include, exclude, true); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestOverlap(t *testing.T) {
	aliases := []string{"east", "west", "north"}
	f := func(want string, overlap bool, hops ...string) {
		t.Helper()
		var ring []Hop
		for _, h := range hops {
			ring = append(ring, hop(t, h))
		}
		got, ok := Overlap(ring, aliases)
		if got != want || ok != overlap {
			t.Errorf("%s: got %q, %v, want %q, %v", strings.Join(hops, " | "), got, ok, want, overlap)
		}
	}
	// prefix both ways: the name tells
	f("", false, "east>west prefix .*", "west>east prefix .*")
	f("", false, "east>west prefix .*", "west>north prefix .*", "north>east prefix .*")
	f("", false, "east>west prefix:_ .*", "west>east prefix:_ .*")
	// with two separators neither sees the other's prefix
	f("a", true, "east>west prefix:_ .*", "west>east prefix .*")
	f("", false, "east>west prefix:_ .*", "west>east prefix .* !east_.*")
	// identity both ways
	f("a", true, "east>west identity .*", "west>east identity .*")
	f("orders", true, "east>west identity orders", "west>east identity orders payments")
	f("", false, "east>west identity orders", "west>east identity payments")
	f("", false, "east>west identity east-.*", "west>east identity west-.*")
	f("", false, "east>west identity .* !west-.*", "west>east identity west-.*")
	f("a-b", true, "east>west identity a.*", "west>east identity .*-b")
	f("", false, "east>west identity orders[0-9]{4}", "west>east identity orders[0-9]{5}")
	f("", false, "east>west identity __.*", "west>east identity .*") // internal topics are excluded
	f("a-orders", true, "east>west identity .*\\borders", "west>east identity a.*")
	f("", false, "east>west identity a^b.*", "west>east identity .*")
	f("", false, "east>west identity", "west>east identity .*")
	// Java's own constructs are beyond exact reasoning: an include may match anything, an exclude nothing
	f("", true, "east>west identity (?!west)east.*", "west>east identity west.*")
	f("a", true, "east>west identity (?!west).*", "west>east identity .*")
	f("", true, "east>west identity .*", "west>east identity west.* !(?=west).*")
	f("", false, "east>west identity (?!west).* !west.*", "west>east identity west.*")
	// identity one way, prefix the other: east's own orders would come back as west.orders
	f("a", true, "east>west identity .*", "west>east prefix .*")
	f("a", true, "west>east prefix .*", "east>west identity .*")
	f("", false, "west>east prefix .*", "east>west identity .* !west[.].*")
	f("orders", true, "east>west prefix orders", "west>east identity east[.]orders")
	f("", false, "east>west prefix orders", "west>east identity orders")
	// rename counts as identity
	f("orders", true, "east>west rename orders orders=orders-copy", "west>east identity .*")
	f("", false, "east>west rename orders orders=orders-copy", "west>east identity orders")
	f("", false, "east>west rename orders orders=orders-copy", "west>east prefix orders")
	f("orders", true, "east>west rename orders orders=a", "west>east rename a a=b")
	f("b", true, "east>west rename .* orders=a !orders !a", "west>east identity .* !orders !a")
	f("", false, "east>west rename orders|copy orders=copy", "west>east identity orders")
	f("x", true, "east>west prefix x", "west>east rename east[.]x east.x=y")
	// one cluster under two names: the link after itself
	f("", false, "east>west rename orders orders=copy", "east>west rename orders orders=copy")
	f("a", true, "east>west prefix .*", "east>west prefix .*")
	f("", false, "east>west prefix orders", "east>west prefix orders")
	// rings of three
	f("a", true, "east>west identity .*", "west>north identity .*", "north>east identity .*")
	f("a", true, "east>west identity .*", "west>north prefix .*", "north>east prefix .*")
	f("", false, "east>west identity a.*", "west>north identity .*", "north>east identity b.*")
}

// A walk that would take too long ends, on the safe side.
func TestOverlapIsBounded(t *testing.T) {
	a := hop(t, "east>west identity (x|y)*x(x|y){20}")
	b := hop(t, "west>east identity (x|y)*y(x|y){21}(x|y)")
	if example, overlap := Overlap([]Hop{a, b}, nil); example != "" || !overlap {
		t.Errorf("got %q, %v", example, overlap)
	}
}

func TestRings(t *testing.T) {
	same := func(alias string) string { return alias }
	f := func(node func(string) string, links string, want ...[]int) {
		t.Helper()
		var hops []Hop
		for _, l := range strings.Fields(links) {
			from, to, _ := strings.Cut(l, ">")
			h := Hop{From: from, To: strings.TrimSuffix(to, "!")}
			h.Naming.Kind = Prefix
			if h.To != to {
				h.Naming.Kind = Identity
			}
			hops = append(hops, h)
		}
		got, ok := Rings(hops, node, func(h Hop) bool { return h.Naming.Kind == Identity })
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%s: %v %s", links, ok, diff)
		}
	}
	f(same, "a>b! a>c! b>c!")
	f(same, "a>b b>a")
	f(same, "a>b! b>a!", []int{0, 1}, []int{1, 0})
	f(same, "a>b! b>a", []int{0, 1}, []int{1, 0})
	f(same, "a>b b>c c>a!", []int{0, 1, 2}, []int{1, 2, 0}, []int{2, 0, 1})
	f(same, "a>b! b>c! c>b!", []int{1, 2}, []int{2, 1})
	f(same, "a>b b>c! c>a b>a", []int{0, 1, 2}, []int{1, 2, 0}, []int{2, 0, 1})
	f(func(string) string { return "one" }, "a>b!", []int{0})

	var mesh []Hop
	for _, from := range topicAlphabet[:20] {
		for _, to := range topicAlphabet[:20] {
			if from != to {
				mesh = append(mesh, Hop{From: string(from), To: string(to)})
			}
		}
	}
	if _, ok := Rings(mesh, same, func(Hop) bool { return true }); ok {
		t.Error("a mesh of 20 clusters is said to have few rings")
	}
	if rings, ok := Rings(mesh, same, func(Hop) bool { return false }); !ok || rings != nil {
		t.Errorf("%d rings where no link matters, %v", len(rings), ok)
	}
}

// What Overlap calls safe is safe: no short name travels the hops, whatever the patterns and namings. And where it calls patterns
// without Java's own constructs unsafe, it has a name to show.
func TestOverlapAgainstTrying(t *testing.T) {
	pattern := rapid.StringMatching(`[ab.]([ab]|[.]|[*+?|]|[(]a|[|]b[)]|[.][*]|[[]ab[]]|x[*]){0,4}`).Filter(func(s string) bool {
		_, err := CompilePattern(s)
		return err == nil
	})
	var names []string
	var grow func(name string)
	grow = func(name string) {
		if name != "" {
			names = append(names, name)
		}
		if len(name) < 4 {
			for _, c := range []string{"a", "b", "x", "."} {
				grow(name + c)
			}
		}
	}
	grow("")
	aliases := []string{"a", "b"}
	rapid.Check(t, func(rt *rapid.T) {
		var ring []Hop
		for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
			filter, err := NewFilter(rapid.SliceOfN(pattern, 1, 2).Draw(rt, "include"), rapid.SliceOfN(pattern, 0, 2).Draw(rt, "exclude"), true)
			if err != nil {
				rt.Fatal(err)
			}
			h := Hop{From: way[0], To: way[1], Filter: filter}
			h.Separator = rapid.SampledFrom([]string{".", "x"}).Draw(rt, "separator")
			h.Naming.Kind = rapid.SampledFrom([]NamingKind{Prefix, Identity, Rename}).Draw(rt, "naming")
			if h.Naming.Kind == Rename {
				h.Naming.Rename = map[string]string{"a": "b", "ab": rapid.SampledFrom([]string{"aa", "x", "a.b"}).Draw(rt, "renamed")}
			}
			ring = append(ring, h)
		}
		example, overlap := Overlap(ring, aliases)
		travelled := ""
		for _, name := range names {
			at := name
			for _, h := range ring {
				taken, err := h.Filter.Accepts(at)
				if err != nil {
					rt.Fatal(err)
				}
				target, ok := NewNamer(h.Naming, h.From, h.To, h.Separator, aliases).Target(at)
				if !taken || !ok {
					at = ""
					break
				}
				at = target
			}
			if at != "" {
				travelled = name
				break
			}
		}
		if travelled != "" && !overlap {
			rt.Fatalf("%q travels, Overlap says that nothing does", travelled)
		}
		if example != "" && travelled == "" && len(example) <= 4 && strings.Trim(example, "abx.") == "" {
			rt.Fatalf("%q is said to travel and does not", example)
		}
	})
}
