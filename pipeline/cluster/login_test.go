package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A password that is read from a file counts from the next login on, by both ways.
func TestSecretIsReadAtEveryLogin(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		file := filepath.Join(t.TempDir(), "password")
		put := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put("not yet")
		f := fake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "kferry", "right"))
		s := &SASL{Mechanism: mechanism, Username: "kferry", Password: NewSecretFrom(func() (string, error) {
			b, err := os.ReadFile(file)
			return string(b), err
		})}
		c := open(t, Config{Bootstrap: f.ListenAddrs(), SASL: s})
		if err := c.Reach(within(t)); err == nil {
			t.Fatal("a wrong password was taken")
		}
		put("right")
		bothWays(t, c)
		os.Remove(file)
		err := c.Reach(within(t))
		if err == nil || Fatal(err) || !strings.Contains(err.Error(), "read sasl.password: open "+file+": no such file or directory") {
			t.Fatalf("got %v", err)
		}
	}
}

// Credentials that never worked, or that cannot change, are refused for good at once. The others are given ten minutes.
func TestRefusalOfWhatWorked(t *testing.T) {
	refusal := kerr.SaslAuthenticationFailed
	changing := &SASL{Mechanism: "PLAIN", Username: "u", Password: NewSecretFrom(func() (string, error) { return "p", nil })}
	f := func(s *SASL, worked bool, since time.Duration, fatal bool) {
		t.Helper()
		l := newLogins(s, "")
		if worked {
			l.judge(t.Context(), nil)
		}
		if since > 0 {
			l.refused = time.Now().Add(-since)
		}
		err := l.judge(t.Context(), refusal)
		if Fatal(err) != fatal || !strings.Contains(err.Error(), "check sasl.username and sasl.password") {
			t.Errorf("worked %v, since %v: %v", worked, since, err)
		}
		if err := l.judge(t.Context(), ErrTLS); !errors.Is(err, ErrTLS) {
			t.Errorf("another error: %v", err)
		}
	}
	f(changing, false, 0, true)
	f(changing, true, 0, false)
	f(changing, true, rotationGrace-time.Minute, false)
	f(changing, true, rotationGrace+time.Second, true)
	f(user("PLAIN", "p"), true, 0, true)
	if err := (*logins)(nil).judge(t.Context(), refusal); err != error(refusal) {
		t.Errorf("without SASL: %v", err)
	}
}

// The broker has the new password, the file not yet: both ways to the cluster wait for it.
func TestRotation(t *testing.T) {
	f := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "kferry", "p"))
	c := open(t, Config{Bootstrap: f.ListenAddrs(), SASL: &SASL{Mechanism: "PLAIN", Username: "kferry",
		Password: NewSecretFrom(func() (string, error) { return "p", nil })}})
	bothWays(t, c)
	var changed atomic.Bool
	changed.Store(true)
	f.ControlKey(keySASLAuthenticate, func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if !changed.Load() {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		return resp, nil, true
	})
	c.Client().Close() // the connection that was there holds
	client, err := c.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c.client = client
	_, err = c.Dial(within(t), 0)
	for what, err := range map[string]error{"Dial": err, "Refresh": c.Refresh(within(t))} {
		if err == nil || Fatal(err) || !strings.Contains(err.Error(), "credentials refused: check sasl.username and sasl.password: ") ||
			!strings.Contains(err.Error(), "they worked before") {
			t.Fatalf("%s: got %v", what, err)
		}
	}
	changed.Store(false)
	bothWays(t, c)
}
