package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
)

// TestSecurity copies through every kind of listener, as source and as target.
func TestSecurity(t *testing.T) {
	plain, k := east(t), secure(t)
	login := func(mechanism string) *cluster.SASL {
		return &cluster.SASL{Mechanism: mechanism, Username: user, Password: cluster.NewSecret(password)}
	}
	trust := &cluster.TLS{CA: doors.CA}
	for _, c := range []struct {
		name     string
		listener kafkatest.Listener
		tls      *cluster.TLS
		sasl     *cluster.SASL
	}{
		{"tls", kafkatest.TLS, trust, nil},
		{"mutual-tls", kafkatest.MutualTLS, &cluster.TLS{CA: doors.CA, Cert: doors.Client.Cert, Key: doors.Client.Key}, nil},
		{"tls-plain", kafkatest.SASLTLS, trust, login("PLAIN")},
		{"tls-scram-256", kafkatest.SASLTLS, trust, login("SCRAM-SHA-256")},
		{"tls-scram-512", kafkatest.SASLTLS, trust, login("SCRAM-SHA-512")},
		{"plain", kafkatest.SASLPlaintext, nil, login("PLAIN")},
		{"scram-256", kafkatest.SASLPlaintext, nil, login("SCRAM-SHA-256")},
		{"scram-512", kafkatest.SASLPlaintext, nil, login("SCRAM-SHA-512")},
		{"tls-oauth", kafkatest.SASLTLS, trust, &cluster.SASL{Mechanism: "OAUTHBEARER", OAuth: tokens(t)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			topic := "secure-" + c.name
			create(t, plain, topic, 1)
			newNumbers(t, plain, topic, 1).write(10)
			// In, and back out to where it came from under another name: both ways over the listener.
			cfg := config(plain, k, c.name, topic)
			door := cluster.Config{Alias: c.name + "dst", Bootstrap: k.BootstrapOn(c.listener), TLS: c.tls, SASL: c.sasl}
			cfg.Clusters[door.Alias] = door
			caughtUp(t, cfg)
			exactly(t, k, alias(cfg)+"."+topic, 1, 0, 10)
			back := config(k, west(t), c.name+"-back", alias(cfg)+"[.]"+topic)
			door.Alias = alias(back)
			back.Clusters[door.Alias] = door
			caughtUp(t, back)
			exactly(t, west(t), alias(back)+"."+alias(cfg)+"."+topic, 1, 0, 10)
		})
	}
}

// tokens is an endpoint whose tokens last three seconds, less than the test.
func tokens(t *testing.T) *cluster.OAuth {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != user || secret != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3}`, kafkatest.UnsecuredToken(user, time.Now().Add(3*time.Second)))
	}))
	t.Cleanup(s.Close)
	return &cluster.OAuth{TokenEndpoint: s.URL, ClientID: user, ClientSecret: cluster.NewSecret(password)}
}

// TestRefused starts the program with what cannot work: one sentence that names the cluster, its address and the cure, and
// exit code 2.
func TestRefused(t *testing.T) {
	from, k := east(t), secure(t)
	create(t, from, "refused", 1)
	limited(t, k)
	const scram = `sasl: { mechanism: SCRAM-SHA-512, username: kferry, password: "${env:E2E_PASSWORD}" }`
	t.Setenv("E2E_PASSWORD", password)
	t.Setenv("E2E_WRONG", "battery-staple")
	tls := func(more string) string { return fmt.Sprintf("tls: { ca: %q%s }", doors.CA, more) }
	for _, c := range []struct {
		name     string
		listener kafkatest.Listener
		side     string // of the target, beside its bootstrap
		words    []string
	}{
		{"wrong-password", kafkatest.SASLPlaintext, strings.Replace(scram, "E2E_PASSWORD", "E2E_WRONG", 1), []string{"credentials refused", "sasl.password"}},
		{"wrong-password-plain", kafkatest.SASLTLS, tls("") + ", " + `sasl: { mechanism: PLAIN, username: kferry, password: "${env:E2E_WRONG}" }`, []string{"credentials refused", "sasl.password"}},
		{"no-login", kafkatest.SASLPlaintext, "", []string{"credentials refused", "SASL"}},
		{"unknown-authority", kafkatest.TLS, fmt.Sprintf("tls: { ca: %q }", doors.OtherCA), []string{"TLS mismatch", "authority", "tls.ca"}},
		{"expired", kafkatest.ExpiredTLS, tls(""), []string{"TLS mismatch", "expired"}},
		{"tls-on-plaintext", kafkatest.Plaintext, tls(""), []string{"TLS mismatch", "does not speak TLS"}},
		{"plaintext-on-tls", kafkatest.TLS, "", []string{"TLS mismatch", "speaks TLS"}},
		{"no-client-certificate", kafkatest.MutualTLS, tls(""), []string{"TLS mismatch", "client certificate"}},
		{"foreign-client-certificate", kafkatest.MutualTLS, tls(fmt.Sprintf(", cert: %q, key: %q", doors.Foreign.Cert, doors.Foreign.Key)), []string{"TLS mismatch", "tls.cert"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr := k.BootstrapOn(c.listener)[0]
			p := launch(t, guarded("refused", from.Bootstrap()[0], addr, c.side, "refused"), "run")
			p.ends(2)
			p.oneSentence(append(c.words, "refuseddst", addr)...)
		})
	}
	t.Run("no-permission", func(t *testing.T) {
		deny := kadm.NewACLs().Deny("User:"+limitedUser).DenyHosts("*").Clusters().ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpCreate, kadm.OpIdempotentWrite)
		acls(t, k, deny)
		denyTopics := kadm.NewACLs().Deny("User:"+limitedUser).DenyHosts("*").Topics("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpCreate, kadm.OpWrite)
		acls(t, k, denyTopics)
		t.Cleanup(func() {
			for _, b := range []*kadm.ACLBuilder{deny, denyTopics} {
				if _, err := adminOf(t, k).DeleteACLs(context.WithoutCancel(t.Context()), b); err != nil {
					t.Error(err)
				}
			}
		})
		addr := k.BootstrapOn(kafkatest.SASLPlaintext)[0]
		p := launch(t, guarded("refused", from.Bootstrap()[0], addr, strings.Replace(scram, "username: kferry", "username: "+limitedUser, 1), "refused"), "run")
		p.ends(2)
		p.oneSentence("refuseddst", "permission missing")
	})
}

// guarded is yaml for a target with TLS or SASL.
func guarded(name, from, to, side, include string) string {
	s := yaml(name, []string{from}, []string{to}, include)
	if side == "" {
		return s
	}
	open := fmt.Sprintf("dst: { bootstrap: [%q]", to)
	return strings.Replace(s, open, open+", "+side, 1)
}

// oneSentence checks the program's last words: one line with all of these, and no secret anywhere.
func (p *program) oneSentence(words ...string) {
	p.t.Helper()
	said := p.said()
	for _, secret := range []string{password, "battery-staple"} {
		if bytes.Contains(said, []byte(secret)) {
			p.t.Errorf("the log shows the secret %s", secret)
		}
	}
	var last []string
	for line := range strings.Lines(string(said)) {
		if strings.HasPrefix(line, "kferry: ") {
			last = append(last, line)
		}
	}
	if len(last) != 1 || !strings.HasSuffix(string(said), last[0]) {
		p.t.Fatalf("want one sentence at the end, have %q in:\n%s", last, said)
	}
	for _, w := range words {
		if !strings.Contains(last[0], w) {
			p.t.Errorf("the sentence lacks %q: %s", w, last[0])
		}
	}
}

// TestUnreachable is retried for ever: nothing listens, then a broker does.
func TestUnreachable(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "unreachable", 1)
	newNumbers(t, from, "unreachable", 1).write(5)
	addr := freeAddr(t)
	p := launch(t, yaml("unreachable", from.Bootstrap(), []string{addr}, "unreachable"), "run")
	p.waitSaid("trying again")
	for _, w := range []string{"unreachabledst", addr} {
		if !bytes.Contains(p.said(), []byte(w)) {
			t.Errorf("kferry does not name %s", w)
		}
	}
	p.terminate()
	p.ends(0)

	// The same with a door that opens: kferry gets in by itself.
	to.Proxy.Refuse(true)
	t.Cleanup(func() { to.Proxy.Refuse(false) })
	p = launch(t, yaml("unreachable", from.Bootstrap(), to.BootstrapOn(kafkatest.Proxied), "unreachable"), "run", "--until-caught-up")
	p.waitSaid("trying again")
	to.Proxy.Refuse(false)
	p.ends(0)
	exactly(t, to, "unreachablesrc.unreachable", 1, 0, 5)
}
