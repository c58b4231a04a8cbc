package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const oauthBearer = "OAUTHBEARER"

// rotationGrace is how long credentials that worked may be refused. Brokers and files are never changed in the same instant.
const rotationGrace = 10 * time.Minute

// logins is a cluster's way to log in: the mechanism, and how it went so far.
type logins struct {
	sasl      *SASL
	mechanism sasl.Mechanism
	tokens    *tokens // nil but for OAUTHBEARER

	mu      sync.Mutex
	worked  bool
	refused time.Time // the first refusal since it last worked
}

// newLogins returns nil where no SASL is configured. The mechanism reads the credentials anew for each login.
func newLogins(s *SASL, ca string) *logins {
	if s == nil {
		return nil
	}
	l := &logins{sasl: s}
	password := func() (string, error) {
		text, err := s.Password.Reveal()
		if err != nil {
			return "", fmt.Errorf("read sasl.password: %w", err)
		}
		return text, nil
	}
	scramAuth := func(context.Context) (scram.Auth, error) {
		text, err := password()
		return scram.Auth{User: s.Username, Pass: text}, err
	}
	switch s.Mechanism {
	case "PLAIN":
		l.mechanism = plain.Plain(func(context.Context) (plain.Auth, error) {
			text, err := password()
			return plain.Auth{User: s.Username, Pass: text}, err
		})
	case "SCRAM-SHA-256":
		l.mechanism = scram.Sha256(scramAuth)
	case "SCRAM-SHA-512":
		l.mechanism = scram.Sha512(scramAuth)
	case oauthBearer:
		l.tokens = newTokens(*s.OAuth, ca)
		l.mechanism = oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := l.tokens.get(ctx)
			return oauth.Auth{Token: token, Extensions: s.OAuth.Extensions}, err
		})
	default:
		panic("BUG: a SASL mechanism that Validate lets pass: " + s.Mechanism)
	}
	return l
}

// cure says where to look after a refusal.
func (s *SASL) cure() string {
	if s.Mechanism == oauthBearer {
		return "check that the token is for this cluster (issuer, audience, scope) and has not ended by the broker's clock"
	}
	return "check sasl.username and sasl.password"
}

// user is whom we log in as, as far as we know: the brokers take it from a token.
func (s *SASL) user() string {
	if s.Mechanism == oauthBearer {
		return s.OAuth.ClientID
	}
	return s.Username
}

// changes reports whether the credentials can change under a running process.
func (s *SASL) changes() bool { return s.Mechanism == oauthBearer || s.Password.Changes() }

// judge hears how a login, or a request by franz-go, ended, and returns err as it is to be taken: a refusal is not Fatal while
// credentials that worked may be in the middle of a change.
func (l *logins) judge(ctx context.Context, err error) error {
	if l == nil {
		return err
	}
	if errors.Is(err, kerr.SaslAuthenticationFailed) && !Fatal(err) {
		err = fmt.Errorf("%w: %s: %w", ErrCredentials, l.sasl.cure(), err)
	}
	refused := errors.Is(err, ErrCredentials)
	if refused && l.tokens != nil {
		l.tokens.drop(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.worked, l.refused = true, time.Time{}
	case !refused || !l.worked || !l.sasl.changes():
	default:
		if l.refused.IsZero() {
			l.refused = time.Now()
		}
		if end := l.refused.Add(rotationGrace); time.Now().Before(end) {
			// The class is told, not wrapped.
			return fmt.Errorf("%v: they worked before, so their change is waited for until %s", err, end.UTC().Format(time.RFC3339))
		}
	}
	return err
}
