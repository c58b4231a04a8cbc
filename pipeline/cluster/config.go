package cluster

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
)

// DefaultClientID is what brokers see in their logs and quotas when a Config names nothing else.
const DefaultClientID = "kferry"

var aliasShape = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Config says how one cluster is reached.
type Config struct {
	Alias     string   // the name in the configuration, [A-Za-z0-9_-]+
	Bootstrap []string // host:port of some brokers; the others are learned from metadata
	TLS       *TLS     // nil: plaintext
	SASL      *SASL    // nil: no authentication
	Rack      string   // sent with fetches, so that the nearest replica may answer (KIP-392)
	ClientID  string   // DefaultClientID where empty

	// Dial replaces the TCP dialer, under TLS and SASL. For links that tests shape; nil: TCP.
	Dial DialFunc
}

// TLS names PEM files. They are read again at every dial, so a renewed certificate needs no restart.
type TLS struct {
	CA                 string // authorities to trust; empty: those of the system
	Cert, Key          string // our certificate and its key, where the brokers ask for one (mutual TLS)
	ServerName         string // the name in the brokers' certificates; empty: the host that is dialed
	InsecureSkipVerify bool   // trust any certificate
}

// SASL holds the credentials of one user.
type SASL struct {
	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	Username  string
	Password  Secret
	OAuth     *OAuth // in place of user and password, for OAUTHBEARER
}

// Validate reports everything that is wrong with c, joined. It reads no file.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !aliasShape.MatchString(c.Alias) {
		bad("alias %q: only letters, digits, _ and - are allowed, and at least one", c.Alias)
	}
	if len(c.Bootstrap) == 0 {
		bad("bootstrap: at least one host:port is needed")
	}
	for _, addr := range c.Bootstrap {
		if err := checkAddr(addr); err != nil {
			bad("bootstrap %q: %w", addr, err)
		}
	}
	if t := c.TLS; t != nil && (t.Cert == "") != (t.Key == "") {
		bad("tls: cert and key belong together, one of them is missing")
	}
	if s := c.SASL; s != nil {
		errs = append(errs, s.validate()...)
	}
	return errors.Join(errs...)
}

func (s *SASL) validate() []error {
	var errs []error
	switch s.Mechanism {
	case oauthBearer:
		if s.Username != "" || !s.Password.IsZero() {
			errs = append(errs, errors.New("sasl: OAUTHBEARER takes no username and password: the token says who we are"))
		}
		if s.OAuth == nil {
			return append(errs, (&OAuth{}).validate()...)
		}
		return append(errs, s.OAuth.validate()...)
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	default:
		errs = append(errs, fmt.Errorf("sasl mechanism %q: only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER are known", s.Mechanism))
	}
	if s.OAuth != nil {
		errs = append(errs, errors.New("sasl: tokens are for mechanism OAUTHBEARER"))
	}
	if s.Username == "" {
		errs = append(errs, errors.New("sasl: username is missing"))
	}
	if s.Password.IsZero() {
		errs = append(errs, errors.New("sasl: password is missing"))
	}
	return errs
}

func checkAddr(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("not host:port")
	}
	if host == "" {
		return errors.New("the host is missing")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q is not in 1..65535", port)
	}
	return nil
}
