package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"kferry/pipeline"

	"github.com/google/go-cmp/cmp"
)

const printable = `
clusters:
  west: { bootstrap: ["w:9092"], sasl: { mechanism: PLAIN, username: "no", password: hunter2 } }
  east:
    bootstrap: ["e:9092", "f:9092"]
    tls: { ca: /ca.pem }
    sasl: { mechanism: SCRAM-SHA-256, username: kferry, password: "${env:PASSWORD}" }
    rack: r1
  north:
    bootstrap: ["n:9092"]
    sasl: { mechanism: OAUTHBEARER, token_endpoint: "https://n/token", client_id: me, client_secret: hunter2, scope: a b, extensions: { y: "1", x: "2" } }
  south: { bootstrap: ["s:9092"], sasl: { mechanism: OAUTHBEARER, token_command: [t, x] } }
links:
  - { from: east, to: west, start: 2026-01-02T03:04:05.25Z, topics: { include: ['a: "b'] } }
  - { from: west, to: east, name: back, naming: { rename: { z: y, b: a } }, topics: { include: [z, b] }, refresh: 1m30s }
memory: 50MB
`

const printedWant = `clusters:
  east:
    bootstrap:
      - e:9092
      - f:9092
    tls:
      ca: /ca.pem
      insecure_skip_verify: false
    sasl:
      mechanism: SCRAM-SHA-256
      username: kferry
      password: "***"
    rack: r1
  north:
    bootstrap:
      - n:9092
    sasl:
      mechanism: OAUTHBEARER
      token_endpoint: https://n/token
      client_id: me
      client_secret: "***"
      scope: a b
      extensions:
        x: "2"
        "y": "1"
  south:
    bootstrap:
      - s:9092
    sasl:
      mechanism: OAUTHBEARER
      token_command:
        - t
        - x
  west:
    bootstrap:
      - w:9092
    sasl:
      mechanism: PLAIN
      username: "no"
      password: "***"
links:
  - name: east.west
    from: east
    to: west
    topics:
      include:
        - "a: \"b"
      exclude: []
      exclude_internal: true
    naming: prefix
    separator: .
    start: "2026-01-02T03:04:05.25Z"
    isolation: read_committed
    refresh: 10s
    onto_existing: false
    allow_same_cluster: false
  - name: back
    from: west
    to: east
    topics:
      include:
        - z
        - b
      exclude: []
      exclude_internal: true
    naming:
      rename:
        b: a
        z: "y"
    separator: .
    start: earliest
    isolation: read_committed
    refresh: 1m30s
    onto_existing: false
    allow_same_cluster: false
memory: 50000000
admin:
  listen: 127.0.0.1:9464
log:
  level: info
  format: text
`

func load(t *testing.T, text string) pipeline.Config {
	t.Helper()
	cfg, err := Parse("/x.yaml", []byte(text), env("PASSWORD=open sesame"))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestPrint(t *testing.T) {
	cfg := load(t, printable)
	got, err := Print(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(printedWant, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Error(diff)
	}
}

// What is printed can be read again and says the same, but for the passwords; and JSON says what YAML says.
func TestPrintIsReadAgain(t *testing.T) {
	texts := map[string]string{"printable": printable}
	for _, name := range Examples() {
		text, err := Example(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = strings.NewReplacer("${env:", "${env:PASSWORD}", "_PASSWORD}", "").Replace(text)
	}
	for name, text := range texts {
		for _, print := range []func(pipeline.Config) (string, error){Print, PrintJSON} {
			first, err := print(load(t, text))
			if err != nil {
				t.Fatal(err)
			}
			second, err := print(load(t, first)) // JSON is YAML
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(first, second); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
	out, err := PrintJSON(load(t, printable))
	if err != nil || !json.Valid([]byte(out)) {
		t.Errorf("%v: %s", err, out)
	}
}

// No way of showing a configuration or what is wrong with it shows a password, wherever in the file it stands.
func TestSecretsAreNeverShown(t *testing.T) {
	var shown strings.Builder
	cfg := load(t, printable)
	for _, print := range []func(pipeline.Config) (string, error){Print, PrintJSON} {
		out, err := print(cfg)
		if err != nil {
			t.Fatal(err)
		}
		shown.WriteString(out)
	}
	fmt.Fprintf(&shown, "%v %+v %#v", cfg, cfg, cfg)
	slog.New(slog.NewTextHandler(&shown, nil)).Info("read", "config", cfg, "sasl", cfg.Clusters["east"].SASL)
	slog.New(slog.NewJSONHandler(&shown, nil)).Info("read", "config", cfg)

	wrong := []string{
		"clusters: { west: { bootstrap: [w:9092], sasl: { mechanism: PLAIN, username: a, password: hunter2, rack: x } } }",
		"clusters: { west: { sasl: { password: [hunter2] } } }",
		"clusters: { west: { sasl: { password: { hunter2: x } } } }",
		"clusters:\n  west:\n    sasl:\n      password: hunter2: x",
		"clusters:\n  west:\n    sasl:\n      password: \"hunter2",
		"clusters:\n  west:\n    sasl:\n      password: !hunter2 x",
		"clusters:\n  west:\n    sasl:\n      password: %hunter2",
		"clusters:\n  west:\n    sasl:\n      password: @hunter2",
		"clusters:\n  west:\n    sasl: hunter2",
		"clusters: { west: { sasl: { mechanism: \"${env:PASSWORD}\", password: \"${env:PASSWORD}\" } } }",
		"links: [{ start: \"${env:PASSWORD}\", refresh: \"${env:PASSWORD}\", naming: \"x${env:PASSWORD}\", topics: { include: [\"(${env:PASSWORD}\"] } }]",
		"links: [{ name: \"${env:PASSWORD}\", from: \"${env:PASSWORD}\", to: \"${env:PASSWORD}\", separator: \"${env:PASSWORD}\" }]",
		"memory: \"${env:PASSWORD}\"\nadmin: { listen: \"${env:PASSWORD}\" }\nlog: { level: \"${env:PASSWORD}\" }",
	}
	for _, text := range wrong {
		_, err := Parse("x.yaml", []byte(text), env("PASSWORD=open\tsesame"))
		if err == nil {
			t.Errorf("%s: was taken", text)
			continue
		}
		fmt.Fprintf(&shown, "%v %+v\n", err, err)
	}
	for _, secret := range []string{"hunter2", "sesame"} {
		if i := strings.Index(shown.String(), secret); i >= 0 {
			t.Errorf("%q is shown: ...%s...", secret, shown.String()[max(0, i-200):min(shown.Len(), i+80)])
		}
	}
}
