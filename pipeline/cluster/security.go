package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// mechanisms is constant; the keys are the names on the wire.
var mechanisms = map[string]func(user, password string) sasl.Mechanism{
	"PLAIN": func(u, p string) sasl.Mechanism { return plain.Auth{User: u, Pass: p}.AsMechanism() },
	"SCRAM-SHA-256": func(u, p string) sasl.Mechanism {
		return scram.Auth{User: u, Pass: p}.AsSha256Mechanism()
	},
	"SCRAM-SHA-512": func(u, p string) sasl.Mechanism {
		return scram.Auth{User: u, Pass: p}.AsSha512Mechanism()
	},
}

// mechanism returns franz-go's implementation. s has been validated.
func (s *SASL) mechanism() sasl.Mechanism {
	return mechanisms[s.Mechanism](s.Username, s.Password.Reveal())
}

// load reads the files and returns a configuration for connections to addr (host:port; empty only checks the files). Errors name
// the file and wrap ErrTLS.
func (t *TLS) load(addr string) (*tls.Config, error) {
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify,
		// Small first records serve a browser that waits for its first byte. We move bulk: every record full.
		DynamicRecordSizingDisabled: true,
	}
	if cfg.ServerName == "" && addr != "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("take the server name from %q: %w", addr, err)
		}
		cfg.ServerName = host
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: read ca: %w", ErrTLS, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: read ca %s: no PEM certificate in it", ErrTLS, t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: read cert %s with key %s: %w", ErrTLS, t.Cert, t.Key, err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
