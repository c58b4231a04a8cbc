package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bothWays asks for metadata by franz-go, then by a connection of our own.
func bothWays(t *testing.T, c *Cluster) {
	t.Helper()
	ctx := within(t)
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	for broker := range c.Topology().Brokers {
		conn, err := c.Dial(ctx, broker)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		resp, err := conn.RoundTrip(ctx, kmsg.NewPtrMetadataRequest())
		if err != nil {
			t.Fatal(err)
		}
		if id := resp.(*kmsg.MetadataResponse).ClusterID; id == nil || *id != "fake-1" {
			t.Fatalf("got %+v", resp)
		}
	}
}

// refused expects Reach and Refresh to fail alike: with this class, these words, and the broker's address.
func refused(t *testing.T, c *Cluster, want error, words ...string) {
	t.Helper()
	for what, ask := range map[string]func(context.Context) error{"Reach": c.Reach, "Refresh": c.Refresh} {
		err := ask(within(t))
		if !errors.Is(err, want) || !Fatal(err) {
			t.Fatalf("%s: got %v, want %v", what, err, want)
		}
		for _, w := range append(words, "west at "+c.cfg.Bootstrap[0]) {
			if !strings.Contains(err.Error(), w) {
				t.Fatalf("%s: got %v\nwant in it %q", what, err, w)
			}
		}
	}
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.issue(soon())
	f := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	seeds := f.ListenAddrs()
	bothWays(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: a.file}}))
	bothWays(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: a.file, ServerName: "localhost"}}))
	bothWays(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{InsecureSkipVerify: true}}))

	refused(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: newAuthority(t).file}}), ErrTLS,
		"start TLS with", "set tls.ca to the authority's PEM file")
	refused(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: a.file, ServerName: "kafka.example"}}), ErrTLS,
		"start TLS with", "the broker's certificate is for another name: set tls.server_name")
	refused(t, open(t, Config{Bootstrap: seeds}), ErrTLS, "the port speaks TLS: add tls to the configuration")
}

func TestExpiredCertificate(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.issue(time.Now().Add(-time.Minute))
	f := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	refused(t, open(t, Config{Bootstrap: f.ListenAddrs(), TLS: &TLS{CA: a.file}}), ErrTLS,
		"start TLS with", "the broker's certificate is expired or not yet valid: renew it, or mend the clock")
}

func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.issue(soon())
	_, cert, key := a.issue(soon())
	_, strangeCert, strangeKey := newAuthority(t).issue(soon())
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			f := fake(t, kfake.TLS(&tls.Config{
				Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool(), MaxVersion: version,
			}))
			seeds := f.ListenAddrs()
			bothWays(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: a.file, Cert: cert, Key: key}}))
			const words = "the broker ended the TLS session (does it ask for a client certificate, and does it trust tls.cert?)"
			refused(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: a.file}}), ErrTLS, words)
			refused(t, open(t, Config{Bootstrap: seeds, TLS: &TLS{CA: a.file, Cert: strangeCert, Key: strangeKey}}), ErrTLS, words)
		})
	}
}

// A renewed certificate is taken at the next dial.
func TestRenewedFiles(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.issue(soon())
	f := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	copyFile := func(from string) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(ca, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(newAuthority(t).file)
	c := open(t, Config{Bootstrap: f.ListenAddrs(), TLS: &TLS{CA: ca}})
	var unknown x509.UnknownAuthorityError
	if err := c.Reach(within(t)); !errors.As(err, &unknown) {
		t.Fatalf("got %v", err)
	}
	copyFile(a.file)
	bothWays(t, c)
}

// A Kafka broker hangs up on a TLS hello at its plaintext port: it reads a request of 369 MB. That is told from a broker that is gone.
func TestTLSToPlaintextPort(t *testing.T) {
	f := fake(t)
	addr := strict(t, f.ListenAddrs()[0])
	refused(t, open(t, Config{Bootstrap: []string{addr}, TLS: &TLS{InsecureSkipVerify: true}}), ErrTLS,
		"start TLS with", "the port does not speak TLS: remove tls from the configuration or use the broker's TLS port")

	gone := strict(t, "") // hangs up on everything
	for _, cfg := range []Config{{}, {TLS: &TLS{InsecureSkipVerify: true}}} {
		cfg.Bootstrap = []string{gone}
		if err := open(t, cfg).Reach(within(t)); err == nil || Fatal(err) || !hungUp(err) {
			t.Fatalf("a broker that hangs up: %v", err)
		}
	}
}

// strict is a proxy that does what Kafka does to a first request above socket.request.max.bytes: it hangs up. Without a broker
// behind it, it always does.
func strict(t *testing.T, broker string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(nc net.Conn) {
		defer nc.Close()
		context.AfterFunc(t.Context(), func() { nc.Close() })
		size := make([]byte, 4)
		if _, err := io.ReadFull(nc, size); err != nil || binary.BigEndian.Uint32(size) > maxRequestBytes || broker == "" {
			nc.Read(make([]byte, 4<<10)) // with nothing unread the end is a FIN, not a reset
			return
		}
		up, err := net.Dial("tcp", broker)
		if err != nil {
			return
		}
		defer up.Close()
		background(t, func() { io.Copy(nc, up); nc.Close() })
		up.Write(size)
		io.Copy(up, nc)
	}
	context.AfterFunc(t.Context(), func() { l.Close() })
	background(t, func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			background(t, func() { serve(nc) })
		}
	})
	return l.Addr().String()
}

func TestTLSFiles(t *testing.T) {
	a := newAuthority(t)
	_, cert, key := a.issue(soon())
	f := func(files TLS, words string) {
		t.Helper()
		_, err := Open(Config{Alias: "west", Bootstrap: []string{"localhost:9093"}, TLS: &files}, nil)
		if !errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), words) {
			t.Fatalf("got %v, want %q", err, words)
		}
	}
	f(TLS{CA: "/no/such/ca.pem"}, "cluster west: TLS mismatch: read ca: open /no/such/ca.pem: no such file or directory")
	f(TLS{CA: key}, "no PEM certificate in it")
	f(TLS{Cert: key, Key: key}, "read cert "+key+" with key "+key)
	f(TLS{Cert: cert, Key: "/no/such/key.pem"}, "open /no/such/key.pem")
}

func user(mechanism, password string) *SASL {
	return &SASL{Mechanism: mechanism, Username: "kferry", Password: NewSecret(password)}
}

func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			f := fake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "kferry", "s3cret-text"),
				kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "30000"}))
			seeds := f.ListenAddrs()
			c := open(t, Config{Bootstrap: seeds, SASL: user(mechanism, "s3cret-text")})
			bothWays(t, c)
			before := time.Now()
			conn, err := c.Dial(within(t), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if e := conn.Expires(); e.Before(before.Add(27*time.Second)) || e.After(time.Now().Add(27*time.Second)) {
				t.Fatalf("a session of 30 s expires in %v, want 27 s", time.Until(e))
			}

			// kfake hangs up on a wrong password, as some brokers do: retried, with a hint.
			err = open(t, Config{Bootstrap: seeds, SASL: user(mechanism, "s3cret-typo")}).Reach(within(t))
			if Fatal(err) || !hungUp(err) || !strings.Contains(err.Error(), "check sasl.username and sasl.password") {
				t.Fatalf("got %v", err)
			}
			// Kafka says so.
			f.ControlKey(keySASLAuthenticate, func(req kmsg.Request) (kmsg.Response, error, bool) {
				f.KeepControl()
				resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
				resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
				resp.ErrorMessage = kmsg.StringPtr("Authentication failed: Invalid username or password")
				return resp, nil, true
			})
			wrong := open(t, Config{Bootstrap: seeds, SASL: user(mechanism, "s3cret-typo")})
			err = wrong.Reach(within(t))
			want := `authenticate "kferry" by ` + mechanism + " with west at " + seeds[0] +
				`: credentials refused: check sasl.username and sasl.password: SASL_AUTHENTICATION_FAILED: SASL Authentication failed. ("Authentication failed: Invalid username or password")`
			if !errors.Is(err, ErrCredentials) || !Fatal(err) || err.Error() != want {
				t.Fatalf("got  %v\nwant %v", err, want)
			}
			if err := wrong.Refresh(within(t)); !errors.Is(err, ErrCredentials) || strings.Contains(err.Error(), "s3cret") {
				t.Fatalf("got %v", err)
			}
			f.ControlKey(keySASLAuthenticate, nil)
		})
	}
}

// The mechanism, or SASL as a whole, is not what the port takes.
func TestSASLMismatch(t *testing.T) {
	f := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "kferry", "secret"))
	seeds := f.ListenAddrs()
	err := open(t, Config{Bootstrap: seeds}).Reach(within(t))
	if !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "the port asks for SASL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512) and the configuration has none: add sasl") {
		t.Fatalf("got %v", err)
	}
	refused(t, open(t, Config{Bootstrap: seeds}), ErrCredentials, "the port asks for SASL")

	answer := func(code int16) {
		f.ControlKey(keySASLHandshake, func(req kmsg.Request) (kmsg.Response, error, bool) {
			resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
			resp.ErrorCode, resp.SupportedMechanisms = code, []string{"GSSAPI", "PLAIN"}
			return resp, nil, true
		})
	}
	answer(kerr.UnsupportedSaslMechanism.Code)
	err = open(t, Config{Bootstrap: seeds, SASL: user("SCRAM-SHA-256", "secret")}).Reach(within(t))
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "set sasl.mechanism to one that the broker offers (GSSAPI, PLAIN)") {
		t.Fatalf("got %v", err)
	}
	answer(kerr.IllegalSaslState.Code)
	err = open(t, Config{Bootstrap: seeds, SASL: user("PLAIN", "secret")}).Reach(within(t))
	if !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "the port takes no SASL: remove sasl from the configuration") {
		t.Fatalf("got %v", err)
	}
}

// SASL inside TLS, as most clusters have it.
func TestSASLOverTLS(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.issue(soon())
	f := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}}), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "kferry", "secret"))
	bothWays(t, open(t, Config{Bootstrap: f.ListenAddrs(), TLS: &TLS{CA: a.file}, SASL: user("SCRAM-SHA-512", "secret")}))
}

// Nobody listens: retried, and the address is named.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c := open(t, Config{Bootstrap: []string{l.Addr().String()}})
	for _, ask := range []func(context.Context) error{c.Reach, c.Refresh} {
		if err := ask(within(t)); err == nil || Fatal(err) || !strings.Contains(err.Error(), "dial west at "+l.Addr().String()+": ") {
			t.Fatalf("got %v", err)
		}
	}
}

// A broker that takes the connection and says nothing is given up after DialTimeout.
func TestSilentBroker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, files := range []*TLS{nil, {InsecureSkipVerify: true}} {
		c := open(t, Config{Bootstrap: []string{l.Addr().String()}, TLS: files})
		opts := ConnOptions{DialTimeout: 50 * time.Millisecond}.withDefaults(c.pool)
		ctx, cancel := context.WithTimeout(within(t), time.Second) // for the probe too
		defer cancel()
		_, err = c.connect(ctx, peer{"west", 1, l.Addr().String()}, opts)
		if !errors.Is(err, ErrTimeout) || Fatal(err) || !strings.Contains(err.Error(), "west broker 1 at "+l.Addr().String()) {
			t.Fatalf("got %v", err)
		}
	}
}
