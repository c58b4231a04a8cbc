package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
)

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
		cfg.RootCAs = x509.NewCertPool()
		if err := addPEM(cfg.RootCAs, t.CA); err != nil {
			return nil, err
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
