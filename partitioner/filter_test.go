package partitioner

import (
	"strings"
	"testing"
)

// Expected values are those of java.util.regex.Pattern.matches.
func TestPatternAsInJava(t *testing.T) {
	f := func(pattern, yes, no string) {
		t.Helper()
		p, err := CompilePattern(pattern)
		if err != nil {
			t.Errorf("compile: %v", err)
			return
		}
		for _, name := range strings.Fields(yes) {
			if ok, err := p.Match(name); err != nil || !ok {
				t.Errorf("%s on %s: got %v, %v, want a match", pattern, name, ok, err)
			}
		}
		for _, name := range strings.Fields(no) {
			if ok, err := p.Match(name); err != nil || ok {
				t.Errorf("%s on %s: got %v, %v, want no match", pattern, name, ok, err)
			}
		}
	}
	f(`orders`, "orders", "orders2 my.orders Orders")
	f(`orders.*`, "orders orders.eu", "my.orders")
	f(`orders[.]eu`, "orders.eu", "orders-eu")
	f(`a|ab`, "a ab", "abc")                  // whole match, not first alternative
	f(`a|b.*|`, "a b bc", "ab")               // an empty alternative
	f(`(?!tmp).*`, "orders atmp", "tmp tmp1") // look-ahead
	f(`.*(?<!-test)`, "orders", "orders-test")
	f(`(?=.*eu).*[.]v1`, "eu.v1 a-eu.v1", "us.v1")
	f(`(?<=x)y|z`, "z", "y xy")
	f(`(a+)-\1`, "a-a aa-aa", "a-aa")                      // back-reference
	f(`(?<n>a|b)(c)-\k<n>\2\1`, "ac-aca bc-bcb", "ac-bca") // named groups count with the others
	f(`(a)\10`, "aa0", "aa")                               // \10 is \1 and 0 while there are no ten groups
	f(`a*+b`, "b aab", "aa")
	f(`[a-z]++[.].*`, "abc.d", "abc")
	f(`(?>a|ab)c`, "ac", "abc")
	f(`a?+a`, "aa", "a")
	f(`a{2}+a`, "aaa", "aa")
	f(`a{2,3}?`, "aa aaa", "a aaaa")
	f(`\Qa.b*\E`, "a.b*", "axb a.bb")
	f(`\Qab\E+`, "ab abb", "abab")
	f(`\Qa.b`, "a.b", "axb")
	f(`[a-z&&[^b]]+`, "ac", "ab") // class intersection
	f(`[a-c&&b-z&&[^x]]`, "b c", "a d")
	f(`[a[0-9]]+`, "a1", "b")
	f(`[^a[0-9]]+`, "b", "a 1")
	f(`[]a]+`, "a ]a", "b")
	f(`[a-]+`, "a-a", "b")
	f(`[\w.-]+`, "a.b-c_1", "a+b")
	f(`[^\W_]+`, "a1", "a_1")
	f(`\p{Upper}\p{Lower}+`, "Orders", "orders ORDERS")
	f(`\P{Digit}+`, "orders", "orders1")
	f(`(?i)orders`, "Orders ORDERS", "order")
	f(`(?i)[^[^a]b]+`, "aA", "b B") // classes fold inside too
	f(`(?i:[[^a]b])[[^a]b]`, "bA", "AA aA ba")
	f(`(?i:o)rders`, "Orders", "ORDERS")
	f(`\x61\u0062\x{63}`, "abc", "abd")
	f(`^orders$`, "orders", "orders1")
	f(`a{1,2000}`, "a aaaa", "b") // above the linear engine's count
	f(`[a&&b]|c`, "c", "a b")
	f(`mm2.*\.internal`, "mm2-offsets.A.internal", "xmm2.internal")
	f(`.*[\-\.]internal`, "a.internal a-internal", "a_internal")
}

func TestPatternErrors(t *testing.T) {
	f := func(pattern, want string) {
		t.Helper()
		_, err := CompilePattern(pattern)
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	f(``, `pattern is empty`)
	f(`*.orders`, `pattern "*.orders": at character 1: '*' has nothing to repeat (write .* for any text)`)
	f(`a**`, `pattern "a**": at character 3: '*' has nothing to repeat (write .* for any text)`)
	f(`a|+`, `pattern "a|+": at character 3: '+' has nothing to repeat (write .+ for any text)`)
	f(`{2}`, `pattern "{2}": at character 1: '{' has nothing to repeat`)
	f(`a{x}`, `pattern "a{x}": at character 2: {x} is not a repeat count`)
	f(`a{3,2}`, `pattern "a{3,2}": at character 2: {3,2} is not a range of repeat counts`)
	f(`a{3`, `pattern "a{3": at character 2: '{' is not closed`)
	f(`(a`, `pattern "(a": at character 1: '(' is not closed`)
	f(`a)`, `pattern "a)": at character 2: ')' closes nothing`)
	f(`[a`, `pattern "[a": at character 1: '[' is not closed`)
	f(`[]`, `pattern "[]": at character 1: '[' is not closed`)
	f(`[z-a]`, `pattern "[z-a]": at character 2: the range is not from a lower to a higher character`)
	f(`[a&&]`, `pattern "[a&&]": at character 3: && has nothing on its right`)
	f(`(?i)*`, `pattern "(?i)*": at character 5: '*' has nothing to repeat`)
	f(`a\`, `pattern "a\\": at character 2: a '\' ends the pattern`)
	f(`\1`, `pattern "\\1": at character 1: \1 names a group that does not exist yet`)
	f(`\k<n>`, `pattern "\\k<n>": at character 1: \k names the group "n", which does not exist yet`)
	f(`\p{Greek}`, `pattern "\\p{Greek}": at character 1: the class \p{Greek} is not known`)
	f(`\y`, `pattern "\\y": at character 1: the escape \y is not known`)
	f(`(?x) a`, `pattern "(?x) a": at character 1: the group's kind or flag 'x' is not known`)
	f(`(?<1>a)`, `pattern "(?<1>a)": at character 1: the group's name is not letters and digits in <>`)
	f(strings.Repeat("a", 10_001), `pattern has 10001 characters, the limit is 10000`)
	f(strings.Repeat("(", 200), `pattern "`+strings.Repeat("(", 200)+`": at character 102: groups are nested deeper than 100`)
}

// A pattern that would run for years ends after its time, as no match and with an error.
func TestPatternThatExplodes(t *testing.T) {
	f, err := NewFilter([]string{`(?=a)(a+a+)+b`, `a.*`}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	ok, err := f.Accepts(strings.Repeat("a", 60))
	want := `match "` + strings.Repeat("a", 60) + `" against pattern "(?=a)(a+a+)+b": gave up after 1s`
	if ok || err == nil || err.Error() != want {
		t.Errorf("got %v, %v", ok, err)
	}
}

func TestFilter(t *testing.T) {
	f := func(include, exclude string, excludeInternal bool, topic, rule string, want bool) {
		t.Helper()
		filter, err := NewFilter(strings.Fields(include), strings.Fields(exclude), excludeInternal)
		if err != nil {
			t.Fatal(err)
		}
		gotRule, got, err := filter.Explain(topic)
		if err != nil || got != want || gotRule != rule {
			t.Errorf("%s: got %q, %v, %v, want %q, %v", topic, gotRule, got, err, rule, want)
		}
	}
	f("orders.*", "orders[.]tmp.*", true, "orders.eu", "include orders.*", true)
	f("orders.*", "orders[.]tmp.*", true, "orders.tmp1", "exclude orders[.]tmp.*", false)
	f("orders.*", "", true, "payments", "no include matches", false)
	f("", "", true, "orders", "no include matches", false)
	f(".*", "", true, "__consumer_offsets", "internal __.*", false)
	f(".*", "", true, "__my_app", "internal __.*", false)
	f("__my_app", "", false, "__my_app", "include __my_app", true)
	f(".*", "", true, "kferry-state.east.internal", "internal kferry-.*[.]internal", false)
	f(".*", "", true, "kferry-offsets.east.internal", "internal kferry-.*[.]internal", false)
	f(".*", "", true, "mm2-offsets.B.internal", "internal mm2.*[.]internal", false)
	f(".*", "", true, "a.internal", "include .*", true)
	f(".*", "", true, "_schemas", "include .*", true)
	f("app-.*", "app-tmp.*", true, "app-tmp1", "exclude app-tmp.*", false)
}

func TestFilterReportsEveryPattern(t *testing.T) {
	_, err := NewFilter([]string{"*.a", "ok"}, []string{"(", "b"}, true)
	want := "include: pattern \"*.a\": at character 1: '*' has nothing to repeat (write .* for any text)\n" +
		"exclude: pattern \"(\": at character 1: '(' is not closed"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func FuzzPattern(f *testing.F) {
	for _, seed := range []string{`a*+`, `[a&&[^b]]`, `(?<n>a)\k<n>`, `\Qa\E+`, `(?i-s:x)`, `a{1,2}?`, `\p{L}`, `[\x{41}-Z]`} {
		f.Add(seed, "orders")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := CompilePattern(pattern)
		if err != nil {
			return
		}
		if p.back == nil {
			p.Match(name) // linear: no time limit needed
		}
	})
}
