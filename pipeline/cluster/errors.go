package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
)

// What can be wrong with a connection. Fatal tells those that no retry mends.
var (
	ErrCredentials  = errors.New("credentials refused")
	ErrTLS          = errors.New("TLS mismatch")
	ErrUnauthorized = errors.New("permission missing")
	ErrUnsupported  = errors.New("not supported by the broker")

	ErrUnknownBroker = errors.New("broker not in the cluster's metadata")
	ErrCorrelation   = errors.New("answer to another request")
	ErrSize          = errors.New("response size out of bounds")
	ErrProtocol      = errors.New("malformed response")
	ErrTimeout       = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)
	ErrClosed        = fmt.Errorf("connection closed by us: %w", net.ErrClosed)

	// ErrNotSent marks an error of Write after which no byte of that request has left: it is not in doubt.
	ErrNotSent = errors.New("request not sent")
)

// Fatal reports whether err can only be mended by an operator: refused credentials, a TLS mismatch, a missing cluster
// permission, a broker that lacks what is configured. The process exits with 2 on these; everything else is retried.
func Fatal(err error) bool {
	for _, fatal := range []error{ErrCredentials, ErrTLS, ErrUnauthorized, ErrUnsupported} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}

// Unsupported reports whether err says that the broker does not know an API, or no version of it that we do. It knows franz-go's
// word for that too, which is no exported error.
func Unsupported(err error) bool {
	return errors.Is(err, ErrUnsupported) || errors.Is(err, kerr.UnsupportedVersion) ||
		err != nil && strings.Contains(err.Error(), "broker is too old")
}

// Explain gives a raw error of a dial, a handshake or a kgo request its class and its cure. What it does not know comes back as
// it is.
func Explain(err error) error {
	if err == nil || Fatal(err) {
		return err
	}
	var (
		record    tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		op        *net.OpError
		code      *kerr.Error
	)
	switch {
	case errors.As(err, &record) && record.Conn != nil: // set for the first record only; later ones are damage on the way
		return fmt.Errorf("%w: the port does not speak TLS: remove tls from the configuration or use the broker's TLS port: %w", ErrTLS, err)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: the broker's certificate is signed by an authority we do not trust: set tls.ca to the authority's PEM file: %w", ErrTLS, err)
	case errors.As(err, &host):
		return fmt.Errorf("%w: the broker's certificate is for another name: set tls.server_name to one of its names, or use one in bootstrap: %w", ErrTLS, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("%w: the broker's certificate is expired or not yet valid: renew it, or mend the clock: %w", ErrTLS, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: the broker's certificate is not valid: %w", ErrTLS, err)
	case errors.As(err, &op) && op.Op == "remote error" && refusal(op.Err):
		return fmt.Errorf("%w: the broker ended the TLS session (does it ask for a client certificate, and does it trust tls.cert?): %w", ErrTLS, err)
	case errors.As(err, &code):
		return explainCode(err, code.Code)
	}
	return err
}

// refusals are the TLS alerts (RFC 8446, 6.2) by which a peer says that it will not take us as we are. The others can come of damage
// on the way, or of a broker that goes down.
var refusals = []tls.AlertError{
	40,                     // handshake_failure
	42, 43, 44, 45, 46, 48, // certificate: bad, unsupported, revoked, expired, unknown; unknown_ca
	49,  // access_denied
	70,  // protocol_version
	71,  // insufficient_security
	112, // unrecognized_name
	116, // certificate_required
}

func refusal(alert error) bool {
	// crypto/tls keeps the type of its alerts to itself outside QUIC; the texts are the same.
	return slices.ContainsFunc(refusals, func(r tls.AlertError) bool { return r.Error() == alert.Error() })
}

func explainCode(err error, code int16) error {
	if Classify(code) != Stop {
		return err
	}
	switch code {
	case kerr.SaslAuthenticationFailed.Code:
		return fmt.Errorf("%w: check sasl.username and sasl.password: %w", ErrCredentials, err)
	case kerr.IllegalSaslState.Code:
		return fmt.Errorf("%w: the port asks for another authentication than the configured one: %w", ErrCredentials, err)
	case kerr.ClusterAuthorizationFailed.Code:
		return fmt.Errorf("%w: grant the user DESCRIBE, CREATE and IDEMPOTENT_WRITE on the cluster: %w", ErrUnauthorized, err)
	case kerr.MismatchedEndpointType.Code:
		return fmt.Errorf("%w: bootstrap names a controller's port: use the brokers': %w", ErrUnsupported, err)
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, err)
}

// hungUp reports whether err means that the peer, or the way to it, went away without a word.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}
