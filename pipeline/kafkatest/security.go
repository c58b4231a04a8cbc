package kafkatest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Security adds encrypted and authenticated listeners to a Kafka. Its user is known to PLAIN, SCRAM-SHA-256 and
// SCRAM-SHA-512 alike, and to OAUTHBEARER by any unsecured token (UnsecuredToken) whose subject it is. Start fills in the rest.
type Security struct {
	User     string
	Password string

	CA      string      // PEM file: who signed the broker's certificate, and whom the broker believes
	OtherCA string      // PEM file: a CA that signed nothing here
	Client  Certificate // of CA, for MutualTLS; its name is the CN "client"
	Expired Certificate // of CA, ended yesterday
	Foreign Certificate // of OtherCA
}

// Certificate is the paths of two PEM files.
type Certificate struct{ Cert, Key string }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// write makes all certificates, as files in dir.
func (s *Security) write(dir string) error {
	dir = filepath.Join(dir, "tls")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	ca, err := newAuthority("kferry test CA")
	if err != nil {
		return err
	}
	other, err := newAuthority("another CA")
	if err != nil {
		return err
	}
	s.CA, s.OtherCA = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "other-ca.pem")
	s.Client, s.Expired, s.Foreign = certificate(dir, "client"), certificate(dir, "expired"), certificate(dir, "foreign")
	for path, a := range map[string]authority{s.CA: ca, s.OtherCA: other} {
		if err := os.WriteFile(path, pemBlock("CERTIFICATE", a.cert.Raw), 0o644); err != nil {
			return err
		}
	}
	now := time.Now()
	for _, c := range []struct {
		name   string
		by     authority
		ending time.Time
	}{
		{"broker", ca, now.AddDate(0, 1, 0)},
		{"broker-expired", ca, now.AddDate(0, 0, -1)},
		{"client", ca, now.AddDate(0, 1, 0)},
		{"expired", ca, now.AddDate(0, 0, -1)},
		{"foreign", other, now.AddDate(0, 1, 0)},
	} {
		cert, key, err := c.by.sign(c.name, c.ending)
		if err != nil {
			return fmt.Errorf("sign the certificate %s: %w", c.name, err)
		}
		files := certificate(dir, c.name)
		if err := os.WriteFile(files.Cert, cert, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(files.Key, key, 0o600); err != nil {
			return err
		}
		// Kafka's PEM keystore is one file, the PKCS#8 key and then the chain.
		if err := os.WriteFile(filepath.Join(dir, c.name+"-keystore.pem"), append(bytes.Clone(key), cert...), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func certificate(dir, name string) Certificate {
	return Certificate{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
}

func newAuthority(name string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, caTemplate(name), caTemplate(name), key.Public(), key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, err
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().AddDate(0, -1, 0),
		NotAfter:              time.Now().AddDate(0, 1, 0),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// sign makes a certificate for loopback that serves both sides of a connection.
func (a authority) sign(name string, ending time.Time) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    ending.AddDate(0, -1, 0),
		NotAfter:     ending,
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pemBlock("CERTIFICATE", der), pemBlock("PRIVATE KEY", pkcs8), nil
}

// UnsecuredToken is a JSON web token without a signature (RFC 7515, appendix A.5) for a user, which ends at end.
func UnsecuredToken(user string, end time.Time) string {
	part := func(claims string) string { return base64.RawURLEncoding.EncodeToString([]byte(claims)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, time.Now().Unix(), end.Unix())) + "."
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// config is the part of server.properties that the listeners need.
func (s *Security) config(dir string) map[string]string {
	keystore := func(name string) string { return filepath.Join(dir, "tls", name+"-keystore.pem") }
	config := map[string]string{
		"ssl.keystore.type":                           "PEM",
		"ssl.keystore.location":                       keystore("broker"),
		"ssl.truststore.type":                         "PEM",
		"ssl.truststore.location":                     s.CA,
		"listener.name.mtls.ssl.client.auth":          "required",
		"listener.name.expired.ssl.keystore.type":     "PEM",
		"listener.name.expired.ssl.keystore.location": keystore("broker-expired"),
		"sasl.enabled.mechanisms":                     "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
	}
	const module = "org.apache.kafka.common.security."
	for _, l := range []string{"sasl_ssl", "sasl_plaintext"} {
		prefix := "listener.name." + l + "."
		config[prefix+"plain.sasl.jaas.config"] = fmt.Sprintf(module+`plain.PlainLoginModule required user_%s="%s";`, s.User, s.Password)
		// Kafka's own validator of unsecured tokens believes whoever a token says it is (KIP-255).
		config[prefix+"oauthbearer.sasl.jaas.config"] = fmt.Sprintf(module+`oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="%s";`, s.User)
		for _, m := range []string{"scram-sha-256", "scram-sha-512"} {
			config[prefix+m+".sasl.jaas.config"] = module + "scram.ScramLoginModule required;"
		}
	}
	return config
}

// formatArgs tells StorageTool the SCRAM users, so that they are there from the first moment.
func (s *Security) formatArgs() []string {
	var args []string
	for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", m, s.User, s.Password))
	}
	return args
}
