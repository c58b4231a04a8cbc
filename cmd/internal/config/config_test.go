package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kferry/partitioner"
	"kferry/pipeline"
	"kferry/pipeline/cluster"

	"github.com/google/go-cmp/cmp"
)

func env(pairs ...string) Env {
	return func(name string) (string, bool) {
		for _, pair := range pairs {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value, true
			}
		}
		return "", false
	}
}

const two = `
clusters: { east: { bootstrap: ["e:9092"] }, west: { bootstrap: ["w:9092"] } }
`

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadEveryKey(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "password", "from a file\n")
	path := write(t, dir, "link.yaml", `
clusters:
  east:
    bootstrap: ["kafka-east-1:9092", "${env:EAST}:9092"]
    tls: { ca: /etc/kferry/east-ca.pem, cert: client.pem, key: tls/client.key, server_name: kafka, insecure_skip_verify: true }
    sasl: { mechanism: SCRAM-SHA-512, username: kferry, password: "${env:EAST_PASSWORD}" }
  west:
    bootstrap:
      - kafka-west-1:9092
    sasl:
      mechanism: PLAIN
      username: "a$${b}"
      password: ${file:password}
links:
  - name: main
    from: east
    to: west
    topics: { include: ["orders.*", 'payments[.]\d+'], exclude: ["orders[.]tmp.*"], exclude_internal: false }
    naming: { rename: { orders: orders-copy } }
    separator: "_"
    start: 2026-01-02T03:04:05.5+01:00
    isolation: read_uncommitted
    refresh: 1m30s
    onto_existing: true
    allow_same_cluster: false
  - from: east
    to: west
memory: 256MiB
admin: { listen: "" }
log:
  level: debug
  format: json
`)
	got, err := Load(path, env("EAST=kafka-east-2", "EAST_PASSWORD=s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	want := pipeline.DefaultConfig()
	want.Clusters["east"] = cluster.Config{
		Alias: "east", Bootstrap: []string{"kafka-east-1:9092", "kafka-east-2:9092"},
		TLS: &cluster.TLS{CA: "/etc/kferry/east-ca.pem", Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "tls/client.key"),
			ServerName: "kafka", InsecureSkipVerify: true},
		SASL: &cluster.SASL{Mechanism: "SCRAM-SHA-512", Username: "kferry", Password: cluster.NewSecret("s3cret")},
	}
	want.Clusters["west"] = cluster.Config{
		Alias: "west", Bootstrap: []string{"kafka-west-1:9092"},
		SASL: &cluster.SASL{Mechanism: "PLAIN", Username: "a${b}", Password: cluster.NewSecret("from a file")},
	}
	main := pipeline.DefaultLink("east", "west")
	main.Name = "main"
	main.Topics = pipeline.TopicFilter{Include: []string{"orders.*", `payments[.]\d+`}, Exclude: []string{"orders[.]tmp.*"}}
	main.Naming = partitioner.NamingConfig{Kind: partitioner.Rename, Rename: map[string]string{"orders": "orders-copy"}}
	main.Separator = "_"
	main.Start = pipeline.Start{Kind: pipeline.StartTime, Time: time.Date(2026, 1, 2, 2, 4, 5, 500e6, time.UTC)}
	main.Isolation = pipeline.ReadUncommitted
	main.Refresh = 90 * time.Second
	main.OntoExisting = true
	want.Links = []pipeline.LinkConfig{main, pipeline.DefaultLink("east", "west")}
	want.MemoryBytes = 256 << 20
	want.AdminListen = ""
	want.Log = pipeline.LogConfig{Level: "debug", Format: "json"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOAuth(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "secret", "first\n")
	path := write(t, dir, "link.yaml", `
clusters:
  east:
    bootstrap: ["[::1]:9092"]
    rack: eu-1a
    sasl:
      mechanism: OAUTHBEARER
      token_endpoint: https://login.example/oauth2/token
      client_id: kferry
      client_secret: ${file:secret}
      scope: kafka
      extensions: { logicalCluster: lkc-1 }
  west: { bootstrap: ["w:9092"], sasl: { mechanism: OAUTHBEARER, token_file: run/token } }
  south: { bootstrap: ["s:9092"], sasl: { mechanism: OAUTHBEARER, token_command: [get-token, --for, "${env:WHO}"] } }
links: [{ from: east, to: west }]
`)
	got, err := Load(path, env("WHO=me"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]cluster.Config{
		"east": {Alias: "east", Bootstrap: []string{"[::1]:9092"}, Rack: "eu-1a", SASL: &cluster.SASL{Mechanism: "OAUTHBEARER",
			OAuth: &cluster.OAuth{TokenEndpoint: "https://login.example/oauth2/token", ClientID: "kferry", ClientSecret: cluster.NewSecret("first"),
				Scope: "kafka", Extensions: map[string]string{"logicalCluster": "lkc-1"}}}},
		"west": {Alias: "west", Bootstrap: []string{"w:9092"}, SASL: &cluster.SASL{Mechanism: "OAUTHBEARER",
			OAuth: &cluster.OAuth{TokenFile: filepath.Join(dir, "run/token")}}},
		"south": {Alias: "south", Bootstrap: []string{"s:9092"}, SASL: &cluster.SASL{Mechanism: "OAUTHBEARER",
			OAuth: &cluster.OAuth{TokenCommand: []string{"get-token", "--for", "me"}}}},
	}
	if diff := cmp.Diff(want, got.Clusters); diff != "" {
		t.Error(diff)
	}

	// What comes from a file is read again, what is in the configuration or the environment is not.
	secret := got.Clusters["east"].SASL.OAuth.ClientSecret
	write(t, dir, "secret", "second\r\n")
	if text, err := secret.Reveal(); text != "second" || err != nil || !secret.Changes() {
		t.Errorf("got %q, %v", text, err)
	}
	if err := os.Remove(filepath.Join(dir, "secret")); err != nil {
		t.Fatal(err)
	}
	if text, err := secret.Reveal(); text != "" || err == nil || err.Error() != "read "+filepath.Join(dir, "secret")+": no such file or directory" {
		t.Errorf("got %q, %v", text, err)
	}
	if fixed := load(t, printable).Clusters["east"].SASL.Password; fixed.Changes() {
		t.Error("a password from the environment is read again")
	}
}

func TestOAuthProblems(t *testing.T) {
	_, err := Parse("x.yaml", []byte(`clusters:
  e: { bootstrap: ["e:9092"], sasl: { mechanism: OAUTHBEARER, token_endpoint: "http://e/", client_secret: s } }
  w: { bootstrap: ["w:9092"], sasl: { mechanism: PLAIN, username: u, password: p, token_file: t } }
  s: { bootstrap: ["s:9092"], sasl: { mechanism: OAUTHBEARER } }
links: [{ from: e, to: w }]`), env())
	want := `x.yaml:2:31: clusters.e.sasl.client_id: client_id is missing
x.yaml:2:79: clusters.e.sasl.token_endpoint: sasl token_endpoint "http://e/": the client's secret would go in clear: use https
x.yaml:3:31: clusters.w.sasl: tokens are for mechanism OAUTHBEARER
x.yaml:4:31: clusters.s.sasl: OAUTHBEARER needs exactly one of token_endpoint, token_file and token_command`
	if err == nil {
		t.Fatal("it was taken")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestDefaults(t *testing.T) {
	got, err := Parse("x.yaml", []byte(two+"links: [{ from: east, to: west }]"), env())
	if err != nil {
		t.Fatal(err)
	}
	want := pipeline.DefaultConfig()
	for _, alias := range []string{"east", "west"} {
		want.Clusters[alias] = cluster.Config{Alias: alias, Bootstrap: []string{alias[:1] + ":9092"}}
	}
	want.Links = []pipeline.LinkConfig{pipeline.DefaultLink("east", "west")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSizes(t *testing.T) {
	f := func(text string, want int64) {
		t.Helper()
		cfg, err := Parse("x.yaml", []byte(two+"links: [{ from: east, to: west }]\nmemory: "+text), env("MEMORY=64MiB"))
		if err != nil || cfg.MemoryBytes != want {
			t.Errorf("%s: got %d, %v, want %d", text, cfg.MemoryBytes, err, want)
		}
	}
	f("1GiB", 1<<30)
	f("256MiB", 256<<20)
	f("50MB", 50_000_000)
	f("1.5 GiB", 3<<29)
	f("20000000", 20_000_000)
	f(`"${env:MEMORY}"`, 64<<20)
}

// The golden file is what a user sees for testdata/bad.yaml: every problem at once, in the file's order.
func TestBadFile(t *testing.T) {
	_, err := Load("testdata/bad.yaml", env("SECRET=hunter2"))
	if err == nil {
		t.Fatal("the file was taken")
	}
	golden := "testdata/bad.txt"
	if os.Getenv("UPDATE") != "" {
		write(t, "testdata", "bad.txt", err.Error()+"\n")
	}
	want, rerr := os.ReadFile(golden)
	if rerr != nil {
		t.Fatal(rerr)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(err.Error()+"\n", "\n")); diff != "" {
		t.Errorf("UPDATE=1 rewrites the golden file; read the difference first\n%s", diff)
	}
}

func TestProblems(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, err := Parse("x.yaml", []byte(text), env("BAD=sesame open"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(want, strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
	link := func(rest string) string { return two + "links:\n- from: east\n  to: west\n" + rest }
	f("", "x.yaml: the file is empty: `kferry config example` prints one to begin with")
	f("# nothing", "x.yaml: the file is empty: `kferry config example` prints one to begin with")
	f("a: [", "x.yaml:1:4: this is not YAML: sequence end token ']' not found")
	f("links: []\n---\nlinks: []", "x.yaml:3:1: a second document begins here: one file is one configuration")
	f("hello", "x.yaml: clusters: there is no cluster: name at least two, each with bootstrap",
		"x.yaml: links: there is no link: name at least one, with from and to",
		"x.yaml:1:1: keys and values are needed here, not a text")
	f(link("  topcs: { include: [a] }"), `x.yaml:6:3: links[0]: unknown key "topcs": the nearest known key is "topics"`)
	f(link("  rack: a"), `x.yaml:6:3: links[0]: unknown key "rack": the nearest known key is "name"`)
	f(link("  refresh: 10"), "x.yaml:6:12: links[0].refresh: the unit is missing: write 10s, 500ms or 1m30s")
	f(link("  refresh: soon"), `x.yaml:6:12: links[0].refresh: "soon" is not a duration such as 10s, 500ms or 1m30s`)
	f(link("  refresh: 5ms"), "x.yaml:6:12: links[0].refresh: 5ms is too often: the brokers are asked for all topics each time, so at least 1s")
	f(link("  refresh:"), "x.yaml:6:12: links[0].refresh: the value is missing: give one, or take the key out")
	f(link("  topics: { include: orders }"), "x.yaml:6:22: links[0].topics.include: a list is needed here, not a text")
	f(link("  topics: { include: [7] }"), "x.yaml:6:23: links[0].topics.include[0]: a text is needed here, not a number: put it in quotes")
	f(link("  topics: [a]"), "x.yaml:6:11: links[0].topics: keys and values are needed here, not a list")
	f(link("  onto_existing: yep"), "x.yaml:6:18: links[0].onto_existing: true or false is needed here")
	f(link("  onto_existing: \"${env:BAD}\""), "x.yaml:6:18: links[0].onto_existing: true or false is needed here")
	f(link("  naming: suffix"), `x.yaml:6:11: links[0].naming: naming "suffix" is not known: prefix, identity, or { rename: { orders: orders-copy } }`)
	f(link("  start: \"${env:BAD}\""), `x.yaml:6:10: links[0].start: start "${env:BAD}" is not known: earliest, latest or an RFC 3339 time`)
	f(link("  start: \"${env:NONE}\""), "x.yaml:6:10: links[0].start: the environment variable NONE is not set")
	f(link("  start: \"${vault:x}\""), "x.yaml:6:10: links[0].start: ${vault:x} is not known: write ${env:NAME}, ${file:PATH}, or $${ for a plain ${")
	f(link("  start: \"${env:x\""), "x.yaml:6:10: links[0].start: a ${ is not closed: write ${env:NAME}, ${file:PATH}, or $${ for a plain ${")
	f(link("  start: \"${file:/none/such}\""), "x.yaml:6:10: links[0].start: read /none/such: no such file or directory")
	f(link("  name: a\n  name: b"), `x.yaml:7:3: links[0]: key "name" is there twice, first in line 6`)
	f(link("  topics: *nothing"), "x.yaml:6:11: links[0].topics: there is no anchor &nothing")
	f(link("  <<: *nothing"), "x.yaml:6:7: links[0]: there is no anchor &nothing")
	f(link("memory: 1XB"), `x.yaml:6:9: memory: "1XB" is not a size such as 256MiB, 1GiB or 50MB`)
	f(link("memory: -1"), `x.yaml:6:9: memory: "-1" is not a size such as 256MiB, 1GiB or 50MB`)
	f(link("memory: 99999999999GiB"), `x.yaml:6:9: memory: "99999999999GiB" is not a size such as 256MiB, 1GiB or 50MB`)
	f(link("memory: 1MiB"), "x.yaml:6:9: memory: 1048576 bytes are too few: kferry needs at least 16MiB")
	f(two+"links: [{ form: east, to: west }]",
		`x.yaml:3:9: links[0].from: from is missing: it names the cluster that records go from`,
		`x.yaml:3:11: links[0]: unknown key "form": the nearest known key is "from"`)
	f(link("")+"- from: west\n  to: east\n  naming: identity",
		`x.yaml:4:3: links[0].naming: links "east.west", "west.east" form a ring: a topic such as "a" of east would come back to it; `+
			"use naming: prefix with one separator on all of them, or include and exclude topics so that their names cannot meet")
	f("a: &a [*a]\nlinks: *a", "x.yaml: clusters: there is no cluster: name at least two, each with bootstrap",
		`x.yaml:1:1: unknown key "a": the nearest known key is "log"`,
		"x.yaml:1:7: links[0]: keys and values are needed here, not a list")
}

func TestMissingAndLargeFiles(t *testing.T) {
	dir := t.TempDir()
	f := func(path, want string) {
		t.Helper()
		if _, err := Load(path, env()); err == nil || err.Error() != path+": "+want {
			t.Errorf("got %v, want %s: %s", err, path, want)
		}
	}
	f(filepath.Join(dir, "none.yaml"), "no such file or directory")
	f(write(t, dir, "large.yaml", strings.Repeat("#", fileBytes+1)), "the file has 1048577 bytes, the limit is 1048576")
}

func TestExamples(t *testing.T) {
	for _, name := range Examples() {
		text, err := Example(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text, "# ") {
			t.Errorf("%s does not begin by saying what it is", name)
		}
		cfg, err := Parse(name+".yaml", []byte(text), func(name string) (string, bool) { return "x", strings.HasSuffix(name, "_PASSWORD") })
		if err != nil {
			t.Errorf("%v", err)
		}
		if len(cfg.Links) == 0 {
			t.Errorf("%s has no link", name)
		}
	}
	_, err := Example("active-activ")
	want := `there is no example "active-activ": the nearest is "active-active"; all are active-standby, active-active, hub-and-spoke, fan-out, migration`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	files, err := examples.ReadDir("examples")
	if err != nil || len(files) != len(Examples()) {
		t.Errorf("%d files for %d names, %v", len(files), len(Examples()), err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range Examples() {
		text, err := Example(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(text))
	}
	bad, err := os.ReadFile("testdata/bad.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bad)
	f.Add([]byte("a: &a [*a]\nb: *a\n<<: *a\n? x\n: y\n--- !!map {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("x.yaml", data, env("EAST_PASSWORD=x"))
		if err != nil {
			return
		}
		if _, err := Print(cfg); err != nil {
			t.Error(err)
		}
	})
}
