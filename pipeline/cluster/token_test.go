package cluster

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bearers makes a fake cluster take the tokens that good likes, as Kafka does (OAuthBearerSaslServer.java): a refused one is
// answered by a reason first, and by an error when the client has said that it heard it.
func bearers(f *kfake.Cluster, lifetime time.Duration, good func(message string) bool) {
	f.ControlKey(keySASLHandshake, func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		resp.SupportedMechanisms = []string{"OAUTHBEARER"}
		if req.(*kmsg.SASLHandshakeRequest).Mechanism != "OAUTHBEARER" {
			resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		}
		return resp, nil, true
	})
	f.ControlKey(keySASLAuthenticate, func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		switch message := string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes); {
		case message == "\x01":
			resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
			resp.ErrorMessage = kmsg.StringPtr(`{"status":"invalid_token"}`)
		case good(message):
			resp.SessionLifetimeMillis = lifetime.Milliseconds()
		default:
			resp.SASLAuthBytes = []byte(`{"status":"invalid_token"}`)
		}
		return resp, nil, true
	})
}

func bearer(token string) string { return "n,,\x01auth=Bearer " + token + "\x01\x01" }

// endpoint is an identity provider for the client "me" with the secret "hunter2/+". issue gives a token and its life in seconds.
func endpoint(t *testing.T, start func(http.Handler) *httptest.Server, issue func(form string) (status int, body string)) string {
	t.Helper()
	s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, secret, _ := r.BasicAuth()
		if r.Method != http.MethodPost || user != "me" || secret != "hunter2%2F%2B" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client","error_description":"no hunter2/+ here"}`)
			return
		}
		status, answer := issue(string(body))
		if status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func byClient(url string) *OAuth {
	return &OAuth{TokenEndpoint: url, ClientID: "me", ClientSecret: NewSecret("hunter2/+")}
}

func TestOAuthBearer(t *testing.T) {
	var asked atomic.Int32
	var forms sync.Map
	url := endpoint(t, httptest.NewServer, func(form string) (int, string) {
		forms.Store(form, true)
		return 200, fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":"3600"}`, asked.Add(1))
	})
	f := fake(t)
	var want atomic.Value // kfake asks from its own goroutine
	want.Store("n,,\x01auth=Bearer token-1\x01logicalCluster=lkc-1\x01\x01")
	bearers(f, 30*time.Second, func(message string) bool { return message == want.Load() })
	from := byClient(url)
	from.Scope, from.Extensions = "a b", map[string]string{"logicalCluster": "lkc-1"}
	c := open(t, Config{Bootstrap: f.ListenAddrs(), SASL: &SASL{Mechanism: "OAUTHBEARER", OAuth: from}})
	bothWays(t, c)
	conn, err := c.Dial(within(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if e := time.Until(conn.Expires()); e < 20*time.Second || e > 27*time.Second {
		t.Fatalf("a session of 30 s expires in %v, want 27 s", e)
	}
	if n := asked.Load(); n != 1 {
		t.Fatalf("%d tokens for a few logins", n)
	}
	if _, ok := forms.Load("grant_type=client_credentials&scope=a+b"); !ok {
		t.Fatal("the request is not what RFC 6749 says")
	}
	want.Store("another token") // a broker that refuses the cached one: credentials that worked are given time, and a new token is asked for
	err = c.Reach(within(t))
	if err == nil || Fatal(err) || !strings.Contains(err.Error(), "check that the token is for this cluster") ||
		!strings.Contains(err.Error(), "they worked before, so their change is waited for until ") {
		t.Fatalf("got %v", err)
	}
	want.Store("n,,\x01auth=Bearer token-2\x01logicalCluster=lkc-1\x01\x01")
	bothWays(t, c)

	// From the first login on: for good, by both ways.
	from = byClient(url)
	want.Store("")
	for what, ask := range map[string]func(*Cluster) error{
		"Reach":   func(c *Cluster) error { return c.Reach(within(t)) },
		"Refresh": func(c *Cluster) error { return c.Refresh(within(t)) },
	} {
		err := ask(open(t, Config{Bootstrap: f.ListenAddrs(), SASL: &SASL{Mechanism: "OAUTHBEARER", OAuth: from}}))
		if !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "credentials refused: check that the token is for this cluster (issuer, audience, scope) and has not ended by the broker's clock: ") ||
			strings.Contains(err.Error(), "sasl.password") || strings.Contains(err.Error(), "token-") {
			t.Fatalf("%s: got %v", what, err)
		}
	}
}

// A thousand logins at once ask once, for a token and for an error alike, and one that is impatient spoils nothing for the others.
func TestTokenIsAskedForOnce(t *testing.T) {
	var asked atomic.Int32
	gate := make(chan struct{})
	status := 200
	url := endpoint(t, httptest.NewServer, func(string) (int, string) {
		asked.Add(1)
		<-gate
		return status, `{"access_token":"t1","expires_in":3600}`
	})
	tokens := newTokens(*byClient(url), "")
	impatient, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, err := tokens.get(impatient)
		gone <- err
	}()
	for asked.Load() == 0 {
		if within(t).Err() != nil {
			t.Fatal("nobody asks")
		}
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	all := func(check func(string, error)) {
		var wg sync.WaitGroup
		var here atomic.Int32
		for range 1000 {
			wg.Go(func() {
				here.Add(1)
				check(tokens.get(t.Context()))
			})
		}
		for here.Load() < 1000 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // from being here to asking: all but a straggler join the one that waits at the gate
		close(gate)
		wg.Wait()
	}
	asked.Store(0)
	all(func(token string, err error) {
		if token != "t1" || err != nil {
			t.Errorf("got %q, %v", token, err)
		}
	})
	if n := asked.Load(); n != 1 {
		t.Fatalf("asked %d times", n)
	}

	// Where the endpoint fails, the token that still holds is used; then the failure is shared.
	status = 503
	tokens.renew = time.Now()
	if token, err := tokens.get(t.Context()); token != "t1" || err != nil {
		t.Fatalf("got %q, %v", token, err)
	}
	tokens.drop(t.Context())
	asked.Store(0)
	gate = make(chan struct{})
	all(func(token string, err error) {
		if want := "get a token from token_endpoint " + url + ": it answers 503 Service Unavailable"; token != "" || err == nil || err.Error() != want || Fatal(err) {
			t.Errorf("got %q, %v", token, err)
		}
	})
	if n := asked.Load(); n < 1 || n > 2 { // a second one for those that came after the first had begun
		t.Fatalf("asked %d times", n)
	}
}

func TestEndpointErrors(t *testing.T) {
	f := func(status int, body string, class error, want string) {
		t.Helper()
		url := endpoint(t, httptest.NewServer, func(string) (int, string) { return status, body })
		token, err := newTokens(*byClient(url), "").get(within(t))
		if token != "" || err == nil || err.Error() != "get a token from token_endpoint "+url+": "+want || class != nil && !errors.Is(err, class) ||
			Fatal(err) != (class == ErrCredentials || class == ErrTLS) {
			t.Errorf("got %q, %v, want %s", token, err, want)
		}
	}
	f(400, `{"error":"invalid_scope"}`, ErrCredentials, `credentials refused: it answers 400 ("invalid_scope"): check sasl.client_id, sasl.client_secret and sasl.scope`)
	f(302, "", nil, "it answers 302, which leads elsewhere: put the final address into sasl.token_endpoint")
	f(404, "", nil, "it answers 404: check sasl.token_endpoint")
	f(429, "", nil, "it answers 429 Too Many Requests")
	f(200, "<html>hunter2", ErrProtocol, "malformed response: its answer is not the JSON of a token: check sasl.token_endpoint")
	f(200, "{}", ErrProtocol, "malformed response: it gives no token, which is one word of printable ASCII")
	f(200, `{"access_token":"a\u0001b"}`, ErrProtocol, "malformed response: it gives no token, which is one word of printable ASCII")
	f(200, `{"access_token":"`+strings.Repeat("x", tokenBytes)+`"}`, ErrSize, "response size out of bounds: it gives more than 65536 bytes")

	url := endpoint(t, httptest.NewServer, func(string) (int, string) { return 200, "" })
	from := byClient(url)
	from.ClientSecret = NewSecret("typo-secret")
	_, err := newTokens(*from, "").get(within(t))
	want := "get a token from token_endpoint " + url + `: credentials refused: it answers 401 ("invalid_client"): check sasl.client_id, sasl.client_secret and sasl.scope`
	if !errors.Is(err, ErrCredentials) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // else the end of the connection goes unseen
		<-r.Context().Done()
	}))
	defer slow.Close()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, ErrTimeout)
	defer cancel()
	if _, err := newTokens(*byClient(slow.URL), "").get(ctx); !errors.Is(err, ErrTimeout) || Fatal(err) {
		t.Errorf("a silent endpoint: %v", err)
	}
}

// The endpoint is trusted by tls.ca, beside the system's authorities.
func TestEndpointTLS(t *testing.T) {
	var server *httptest.Server
	url := endpoint(t, func(h http.Handler) *httptest.Server {
		server = httptest.NewUnstartedServer(h)
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		server.StartTLS()
		return server
	}, func(string) (int, string) { return 200, `{"access_token":"t1"}` })
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if token, err := newTokens(*byClient(url), ca).get(within(t)); token != "t1" || err != nil {
		t.Fatalf("got %q, %v", token, err)
	}
	for _, other := range []string{"", newAuthority(t).file} {
		_, err := newTokens(*byClient(url), other).get(within(t))
		if !errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), "get a token from token_endpoint "+url+": TLS mismatch: its certificate is signed by an authority we do not trust: add that one to the PEM file of tls.ca: ") {
			t.Fatalf("got %v", err)
		}
	}
}

func jwt(end time.Time) string {
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
		base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"kferry","exp":%d}`, end.Unix())) + "."
}

// A file is read at every login; it may hold what is no JSON web token.
func TestTokenFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := fake(t)
	good := jwt(soon())
	bearers(f, 0, func(message string) bool { return message == bearer(good) })
	put(good + "\n")
	c := open(t, Config{Bootstrap: f.ListenAddrs(), SASL: &SASL{Mechanism: "OAUTHBEARER", OAuth: &OAuth{TokenFile: file}}})
	bothWays(t, c)
	good = "opaque"
	put("opaque")
	bothWays(t, c)

	refused := func(want string) {
		t.Helper()
		if _, err := newTokens(OAuth{TokenFile: file}, "").get(within(t)); err == nil || Fatal(err) || err.Error() != "get a token from token_file "+file+": "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	put(jwt(time.Unix(1700000000, 0)))
	refused("it ended at 2023-11-14T22:13:20Z: is it renewed, and are the clocks right?")
	put(" \n")
	refused("malformed response: it gives no token, which is one word of printable ASCII")
	put("two words")
	refused("malformed response: it gives no token, which is one word of printable ASCII")
	put(strings.Repeat("x", tokenBytes+1))
	refused("response size out of bounds: it gives more than 65536 bytes")
	os.Remove(file)
	refused("is it there, and may kferry read it: open " + file + ": no such file or directory")
}

func TestTokenCommand(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	run := func(script string) *tokens {
		return newTokens(OAuth{TokenCommand: []string{"/bin/sh", "-c", script, "hunter2"}}, "")
	}
	tokens := run("echo x >> " + count + "; echo " + jwt(soon()))
	for range 3 {
		if token, err := tokens.get(within(t)); err != nil || !strings.HasPrefix(token, "eyJ") {
			t.Fatalf("got %q, %v", token, err)
		}
	}
	if b, err := os.ReadFile(count); err != nil || string(b) != "x\n" {
		t.Fatalf("the command ran %q, %v", b, err)
	}
	if life := time.Until(tokens.renew); life < 45*time.Minute || life > 48*time.Minute {
		t.Fatalf("a token of an hour is renewed in %v, want 48 min", life)
	}
	refused := func(script, want string) {
		t.Helper()
		_, err := run(script).get(within(t))
		if err == nil || Fatal(err) || err.Error() != "get a token from token_command /bin/sh: "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	refused("echo hunter2; echo hunter2 >&2; exit 3", "run it by hand to see why: exit status 3")
	refused("yes | head -c 1000000", "response size out of bounds: it gives more than 65536 bytes")
	refused("true", "malformed response: it gives no token, which is one word of printable ASCII")
	_, err := newTokens(OAuth{TokenCommand: []string{"/no/such/program"}}, "").get(within(t))
	if err == nil || !strings.Contains(err.Error(), "token_command /no/such/program: run it by hand to see why: fork/exec /no/such/program: no such file or directory") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, ErrTimeout)
	defer cancel()
	if _, err := run("exec sleep 60").get(ctx); !errors.Is(err, ErrTimeout) {
		t.Errorf("a command that does not end: %v", err)
	}
}

func TestTokenEnd(t *testing.T) {
	f := func(claims string, want int64, known bool) {
		t.Helper()
		end, ok := tokenEnd("x." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".y")
		if ok != known || known && end.Unix() != want {
			t.Errorf("%s: %v, %v", claims, end, ok)
		}
	}
	f(`{"exp":1700000000}`, 1700000000, true)
	f(`{"exp":1700000000.5}`, 1700000000, true)
	f(`{}`, 0, false)
	f(`{"exp":"soon"}`, 0, false)
	f(`{"exp":-1}`, 0, false)
	f(`{"exp":1e300}`, 0, false)
	f(`no json`, 0, false)
	for _, token := range []string{"", "opaque", "a.b", "a.!.c", "a.b.c.d.e"} {
		if _, known := tokenEnd(token); known {
			t.Errorf("%q has an end", token)
		}
	}
}

// Neither a token nor the client's secret is in what a cluster says at its most talkative.
func TestTokenNeverShows(t *testing.T) {
	url := endpoint(t, httptest.NewServer, func(string) (int, string) { return 200, `{"access_token":"the-token"}` })
	var mu sync.Mutex
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return out.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	f := fake(t)
	var refuses atomic.Bool
	bearers(f, 0, func(string) bool { return !refuses.Load() })
	cfg := Config{Alias: "west", Bootstrap: f.ListenAddrs(), SASL: &SASL{Mechanism: "OAUTHBEARER", OAuth: byClient(url)}}
	c, err := Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	log.Info("opened", "config", cfg, "oauth", fmt.Sprintf("%v %+v %#v", cfg, *cfg.SASL.OAuth, *cfg.SASL.OAuth))
	bothWays(t, c)
	refuses.Store(true)
	log.Info("refused", "err", c.Reach(within(t)))
	c.Client().Close()
	mu.Lock()
	defer mu.Unlock()
	for _, leak := range []string{"the-token", "hunter2"} {
		if i := strings.Index(out.String(), leak); i >= 0 {
			t.Fatalf("it shows: ...%s", out.String()[max(0, i-100):i+len(leak)])
		}
	}
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }
