package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Explain classes what an operator must mend, keeps the whole text, and leaves everything else alone.
func TestExplain(t *testing.T) {
	f := func(err, class error, want string) {
		t.Helper()
		raw := fmt.Errorf("list topics: %w", err)
		got := Explain(raw)
		if got.Error() != want || !errors.Is(got, err) || class != nil && !errors.Is(got, class) || Fatal(got) != (class != nil) {
			t.Errorf("got %v (fatal %v)", got, Fatal(got))
		}
		if again := Explain(got); again != got {
			t.Errorf("explained twice: %v", again)
		}
	}
	f(io.EOF, nil, "list topics: EOF")
	f(kerr.NotEnoughReplicas, nil, "list topics: "+kerr.NotEnoughReplicas.Error())
	f(kerr.TopicAuthorizationFailed, nil, "list topics: "+kerr.TopicAuthorizationFailed.Error()) // parks that topic's lanes
	f(kerr.ClusterAuthorizationFailed, ErrUnauthorized,
		"permission missing: grant the user DESCRIBE, CREATE and IDEMPOTENT_WRITE on the cluster: list topics: CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed.")
	f(kerr.SaslAuthenticationFailed, ErrCredentials,
		"credentials refused: check sasl.username and sasl.password: list topics: SASL_AUTHENTICATION_FAILED: SASL Authentication failed.")
	f(kerr.MismatchedEndpointType, ErrUnsupported,
		"not supported by the broker: bootstrap names a controller's port: use the brokers': list topics: "+kerr.MismatchedEndpointType.Error())
	f(x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, ErrTLS, "TLS mismatch: the broker's certificate is not valid: list topics: "+
		x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}.Error())
	remote := func(alert tls.AlertError) error { return &net.OpError{Op: "remote error", Err: alert} }
	f(remote(48), ErrTLS, "TLS mismatch: the broker ended the TLS session (does it ask for a client certificate, and does it trust tls.cert?): "+
		"list topics: remote error: tls: unknown certificate authority")
	f(remote(20), nil, "list topics: remote error: tls: bad record MAC") // damage on the way
	f(remote(80), nil, "list topics: remote error: tls: internal error")
	f(tls.RecordHeaderError{Msg: "received record with version 7000"}, nil, "list topics: tls: received record with version 7000")
	if Explain(nil) != nil || Fatal(nil) || Unsupported(nil) {
		t.Error("no error is one")
	}
	// Every code that stops the process has a class of its own in the error too.
	for code, class := range classes {
		if code != 0 && Fatal(Explain(kerr.ErrorForCode(code))) != (class == Stop) {
			t.Errorf("%s is %v", CodeName(code), class)
		}
	}
}
