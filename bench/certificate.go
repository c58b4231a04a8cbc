package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const certificateLife = 24 * time.Hour

// Certificate is the paths of two PEM files: a certificate for 127.0.0.1 that signs itself, so it is its own authority, and its
// key. A nil *Certificate is plaintext, in every place where one is taken.
type Certificate struct{ Cert, Key string }

// newCertificate writes a new one into dir.
func newCertificate(dir string) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "kferry bench"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:        true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the bench's certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make the bench's certificate: %w", err)
	}
	c := &Certificate{Cert: filepath.Join(dir, "bench.pem"), Key: filepath.Join(dir, "bench.key")}
	for path, block := range map[string]*pem.Block{c.Cert: {Type: "CERTIFICATE", Bytes: cert}, c.Key: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// server is the configuration of who listens; nil for plaintext.
func (c *Certificate) server() (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("read the bench's certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// client is the configuration of who dials; nil for plaintext.
func (c *Certificate) client() (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	b, err := os.ReadFile(c.Cert)
	if err != nil {
		return nil, fmt.Errorf("read the bench's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("read the bench's certificate: no PEM certificate in %s", c.Cert)
	}
	return &tls.Config{RootCAs: roots}, nil
}
