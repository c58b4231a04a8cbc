package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	f := func(cfg Config, want ...string) {
		t.Helper()
		got := ""
		if err := cfg.Validate(); err != nil {
			got = err.Error()
		}
		if d := cmp.Diff(strings.Join(want, "\n"), got); d != "" {
			t.Error(d)
		}
	}
	one := []string{"kafka-1:9092"}
	f(Config{Alias: "east_1-a", Bootstrap: []string{"kafka-1:9092", "[::1]:9093", "10.0.0.1:65535"}})
	f(Config{Alias: "east", Bootstrap: one, TLS: &TLS{CA: "ca", Cert: "c", Key: "k"}, SASL: user("PLAIN", "x")})
	f(Config{}, `alias "": only letters, digits, _ and - are allowed, and at least one`, "bootstrap: at least one host:port is needed")
	f(Config{Alias: "east.1", Bootstrap: one}, `alias "east.1": only letters, digits, _ and - are allowed, and at least one`)
	f(Config{Alias: "e", Bootstrap: []string{"kafka", ":9092", "k:0", "k:65536", "k:http"}},
		`bootstrap "kafka": not host:port`, `bootstrap ":9092": the host is missing`, `bootstrap "k:0": port "0" is not in 1..65535`,
		`bootstrap "k:65536": port "65536" is not in 1..65535`, `bootstrap "k:http": port "http" is not in 1..65535`)
	f(Config{Alias: "e", Bootstrap: one, TLS: &TLS{Cert: "c"}}, "tls: cert and key belong together, one of them is missing")
	f(Config{Alias: "e", Bootstrap: one, TLS: &TLS{Key: "k"}, SASL: &SASL{Mechanism: "GSSAPI"}},
		"tls: cert and key belong together, one of them is missing",
		`sasl mechanism "GSSAPI": only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are known`, "sasl: username is missing", "sasl: password is missing")
}

func TestValidateOAuth(t *testing.T) {
	f := func(s SASL, want ...string) {
		t.Helper()
		s.Mechanism = "OAUTHBEARER"
		got := ""
		if err := (Config{Alias: "e", Bootstrap: []string{"k:9092"}, SASL: &s}).Validate(); err != nil {
			got = err.Error()
		}
		if d := cmp.Diff(strings.Join(want, "\n"), got); d != "" {
			t.Error(d)
		}
	}
	const url = "https://login.example/token"
	secret := NewSecret("s")
	f(SASL{OAuth: &OAuth{TokenEndpoint: url, ClientID: "a", ClientSecret: secret, Scope: "x y", Extensions: map[string]string{"logicalCluster": "lkc-1"}}})
	f(SASL{OAuth: &OAuth{TokenEndpoint: "http://[::1]:80/token", ClientID: "a", ClientSecret: secret}})
	f(SASL{OAuth: &OAuth{TokenFile: "t"}})
	f(SASL{OAuth: &OAuth{TokenCommand: []string{"t", "x"}}})
	const one = "sasl: OAUTHBEARER needs exactly one of token_endpoint, token_file and token_command"
	f(SASL{}, one)
	f(SASL{OAuth: &OAuth{TokenFile: "t", TokenCommand: []string{""}}}, one, "sasl token_command: the program is missing")
	f(SASL{Username: "u", OAuth: &OAuth{TokenFile: "t", Scope: "x"}}, "sasl: OAUTHBEARER takes no username and password: the token says who we are",
		"sasl: client_id, client_secret and scope are for a token_endpoint")
	f(SASL{OAuth: &OAuth{TokenEndpoint: url}}, "sasl: client_id is missing", "sasl: client_secret is missing")
	f(SASL{OAuth: &OAuth{TokenEndpoint: "http://login.example/token", ClientID: "a", ClientSecret: secret}},
		`sasl token_endpoint "http://login.example/token": the client's secret would go in clear: use https`)
	f(SASL{OAuth: &OAuth{TokenEndpoint: "https://me:hunter2@login.example/token", ClientID: "a", ClientSecret: secret}},
		"sasl token_endpoint: a user in the URL would be shown: use client_id and client_secret")
	f(SASL{OAuth: &OAuth{TokenEndpoint: "login.example", ClientID: "a", ClientSecret: secret}},
		"sasl token_endpoint: not a URL such as https://login.example/oauth2/token")
	f(SASL{OAuth: &OAuth{TokenFile: "t", Extensions: map[string]string{"auth": "x"}}}, `sasl extensions "auth": names are letters, and not auth; values are printable ASCII`)
	f(SASL{OAuth: &OAuth{TokenFile: "t", Extensions: map[string]string{"a": "\x01"}}}, `sasl extensions "a": names are letters, and not auth; values are printable ASCII`)
	err := Config{Alias: "e", Bootstrap: []string{"k:9092"}, SASL: &SASL{Mechanism: "PLAIN", Username: "u", Password: secret, OAuth: &OAuth{}}}.Validate()
	if err == nil || err.Error() != "sasl: tokens are for mechanism OAUTHBEARER" {
		t.Errorf("got %v", err)
	}
}

func TestOpenRefusesBadConfig(t *testing.T) {
	_, err := Open(Config{Alias: "east", Bootstrap: []string{"kafka"}}, slog.New(slog.DiscardHandler))
	if want := `cluster east: bootstrap "kafka": not host:port`; err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

// A password shows in nothing that prints, also not inside other values, exported or not.
func TestSecretNeverShows(t *testing.T) {
	const text = "hunter2-öß"
	s := NewSecret(text)
	type inner struct{ hidden Secret }
	holders := []any{s, &s, user("PLAIN", text), *user("PLAIN", text), Config{SASL: user("PLAIN", text)}, inner{s}, &inner{s},
		[]Secret{s}, map[string]Secret{"k": s}, []any{s}}
	var out bytes.Buffer
	for _, h := range holders {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p", "%10v"} {
			fmt.Fprintf(&out, verb+"\n", h)
		}
		fmt.Fprintln(&out, h)
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("opened", "holder", h, "group", slog.GroupValue(slog.Any("h", h)))
		}
		if b, err := json.Marshal(h); err == nil {
			out.Write(b)
		}
		if b, err := yaml.Marshal(h); err == nil {
			out.Write(b)
		}
	}
	for _, leak := range []string{text, "hunter", fmt.Sprintf("%x", text), fmt.Sprintf("%X", text)} {
		if i := strings.Index(out.String(), leak); i >= 0 {
			t.Fatalf("the password shows: ...%s", out.String()[max(0, i-80):i+len(leak)])
		}
	}
	if b, err := json.Marshal(map[string]Secret{"password": s}); err != nil || string(b) != `{"password":"***"}` {
		t.Fatalf("JSON %s, %v", b, err)
	}
	if b, err := yaml.Marshal(map[string]Secret{"password": s}); err != nil || strings.TrimSpace(string(b)) != `password: '***'` && strings.TrimSpace(string(b)) != `password: "***"` && strings.TrimSpace(string(b)) != `password: ***` {
		t.Fatalf("YAML %s, %v", b, err)
	}
	if fmt.Sprintf("%v %s %q %#v", s, s, s, s) != "*** *** *** ***" {
		t.Fatalf("got %v", s)
	}
	if got, err := s.Reveal(); got != text || err != nil || s.IsZero() || s.Changes() || !(Secret{}).IsZero() || !NewSecret("").IsZero() {
		t.Fatal("Reveal or IsZero")
	}
	if !s.Equal(NewSecret(text)) || s.Equal(NewSecret("other")) || !(Secret{}).Equal(NewSecret("")) {
		t.Fatal("Equal")
	}
}

func TestBackoff(t *testing.T) {
	f := func(random float64, attempt int, want time.Duration) {
		t.Helper()
		if got := DefaultBackoff().Next(func() float64 { return random }, attempt); got != want {
			t.Errorf("attempt %d: %v, want %v", attempt, got, want)
		}
	}
	f(0, 0, 50*time.Millisecond)
	f(0.5, 0, 75*time.Millisecond)
	f(0, 1, 100*time.Millisecond)
	f(0, 3, 400*time.Millisecond)
	f(0, 6, 3200*time.Millisecond)
	f(0, 7, 5*time.Second)
	f(0.5, 7, 7500*time.Millisecond)
	f(0.999, 1<<40, 9995*time.Millisecond)
	f(0, -1, 50*time.Millisecond)
	if got := (Backoff{Min: time.Minute, Max: time.Second}).Next(func() float64 { return 0 }, 3); got != time.Second/2 {
		t.Errorf("Max below Min: %v", got)
	}
}
