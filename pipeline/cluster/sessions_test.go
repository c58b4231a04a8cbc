package cluster

import (
	"crypto/tls"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A second connection resumes the first one's TLS session, but not across a change of our certificate.
func TestSessionIsResumed(t *testing.T) {
	a := newAuthority(t)
	pair, _, _ := a.issue(soon())
	_, cert, key := a.issue(soon())
	_, renewed, renewedKey := a.issue(soon())
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		f := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool(), MaxVersion: version}))
		files := &TLS{CA: a.file, Cert: cert, Key: key}
		c := open(t, Config{Bootstrap: f.ListenAddrs(), TLS: files})
		resumed := func() bool {
			t.Helper()
			conn, err := c.connect(within(t), peer{"west", -1, f.ListenAddrs()[0]}, ConnOptions{}.withDefaults(c.pool))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.RoundTrip(within(t), kmsg.NewPtrMetadataRequest()); err != nil {
				t.Fatal(err)
			}
			return conn.nc.(*tls.Conn).ConnectionState().DidResume
		}
		if resumed() {
			t.Fatal("the first connection resumed a session")
		}
		if !resumed() {
			t.Fatal("the second one did not")
		}
		for from, to := range map[string]string{renewed: cert, renewedKey: key} {
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if version == tls.VersionTLS13 { // the files were renewed with the first version
			continue
		}
		if resumed() {
			t.Fatal("a session of the old certificate was resumed")
		}
	}
}
