package cluster

import (
	"fmt"
	"net"
	"net/url"
	"strings"
)

// OAuth says where the tokens of OAUTHBEARER (KIP-255, RFC 7628) come from: exactly one of an endpoint, a file and a command.
type OAuth struct {
	// An endpoint gives tokens for client credentials (RFC 6749, 4.4). It is asked over TLS and has to be signed by an authority of
	// the system or of tls.ca; plain http is for loopback only.
	TokenEndpoint string
	ClientID      string
	ClientSecret  Secret
	Scope         string // several with spaces between them; empty: none is asked for

	TokenFile    string   // holds a token; read at every login
	TokenCommand []string // program and arguments; prints a token. Run without a shell

	Extensions map[string]string // sent along with the token (KIP-342)
}

// loopbackHost may be asked without TLS: nothing leaves the machine.
func loopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (o *OAuth) validate() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	sources := 0
	for _, given := range []bool{o.TokenEndpoint != "", o.TokenFile != "", len(o.TokenCommand) > 0} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		bad("sasl: OAUTHBEARER needs exactly one of token_endpoint, token_file and token_command")
	}
	if o.TokenEndpoint != "" {
		u, err := url.Parse(o.TokenEndpoint)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			bad("sasl token_endpoint: not a URL such as https://login.example/oauth2/token")
		case u.User != nil:
			bad("sasl token_endpoint: a user in the URL would be shown: use client_id and client_secret")
		case u.Scheme == "http" && !loopbackHost(u.Hostname()):
			bad("sasl token_endpoint %q: the client's secret would go in clear: use https", o.TokenEndpoint)
		}
		if o.ClientID == "" {
			bad("sasl: client_id is missing")
		}
		if o.ClientSecret.IsZero() {
			bad("sasl: client_secret is missing")
		}
	} else if o.ClientID != "" || !o.ClientSecret.IsZero() || o.Scope != "" {
		bad("sasl: client_id, client_secret and scope are for a token_endpoint")
	}
	if len(o.TokenCommand) > 0 && o.TokenCommand[0] == "" {
		bad("sasl token_command: the program is missing")
	}
	for key, value := range o.Extensions {
		// RFC 7628, 3.1: key = 1*(ALPHA), value = *(VCHAR / SP / HTAB / CR / LF). auth is the token's own.
		if key == "" || key == "auth" || strings.IndexFunc(key, notLetter) >= 0 || strings.IndexFunc(value, notVisible) >= 0 {
			bad("sasl extensions %q: names are letters, and not auth; values are printable ASCII", key)
		}
	}
	return errs
}

func notLetter(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }

func notVisible(r rune) bool { return (r < ' ' || r > '~') && r != '\t' && r != '\r' && r != '\n' }
