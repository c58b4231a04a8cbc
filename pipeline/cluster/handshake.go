package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The name and version that brokers count us under (KIP-511).
const (
	softwareName    = "kferry"
	softwareVersion = "0.1"
)

// agree asks for the broker's versions (ApiVersions, KIP-35) and settles ours.
func (c *Conn) agree(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName = softwareName
	req.ClientSoftwareVersion = softwareVersion
	req.Version = 3
	body, err := c.exchange(ctx, req)
	if err == nil && len(body) >= 2 && int16(binary.BigEndian.Uint16(body)) == kerr.UnsupportedVersion.Code {
		// The broker is older than 2.4. It answers in version 0 then, whatever was asked.
		req.Version = 0
		body, err = c.exchange(ctx, req)
	}
	if err != nil {
		return err
	}
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if err := resp.ReadFrom(body); err != nil {
		return c.fail(fmt.Errorf("decode ApiVersions from %s: %w: %w", c.peer, ErrProtocol, err))
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("ask ApiVersions of %s: %w", c.peer, err)
	}
	if c.versions, err = negotiate(resp.ApiKeys, c.opts.MaxVersions); err != nil {
		return fmt.Errorf("agree on versions with %s: %w", c.peer, err)
	}
	return nil
}

// authenticate runs SASL: SaslHandshake names the mechanism, SaslAuthenticate carries its messages (KIP-152).
func (c *Conn) authenticate(ctx context.Context, l *logins) error {
	s, mechanism := l.sasl, l.mechanism
	offered, code, err := c.saslOffer(ctx, mechanism.Name())
	if err != nil {
		return err
	}
	switch code {
	case 0:
	case kerr.UnsupportedSaslMechanism.Code:
		return fmt.Errorf("start SASL with %s: %w: set sasl.mechanism to one that the broker offers (%s): %w", c.peer, ErrUnsupported,
			strings.Join(offered, ", "), kerr.UnsupportedSaslMechanism)
	case kerr.IllegalSaslState.Code:
		return fmt.Errorf("start SASL with %s: %w: the port takes no SASL: remove sasl from the configuration or use a SASL port: %w",
			c.peer, ErrCredentials, kerr.IllegalSaslState)
	default:
		return fmt.Errorf("start SASL with %s: %w", c.peer, Explain(kerr.ErrorForCode(code)))
	}
	session, out, err := mechanism.Authenticate(ctx, c.peer.addr)
	if err != nil {
		return fmt.Errorf("start SASL %s with %s: %w", mechanism.Name(), c.peer, err)
	}
	for done := false; !done || len(out) > 0; {
		began := time.Now()
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.SASLAuthBytes = out
		resp, err := c.RoundTrip(ctx, req)
		if hungUp(err) {
			err = fmt.Errorf("the connection ended in the middle of SASL (some brokers do that on wrong credentials: %s): %w", s.cure(), err)
		}
		if err != nil {
			return err
		}
		auth := resp.(*kmsg.SASLAuthenticateResponse)
		if err := kerr.ErrorForCode(auth.ErrorCode); err != nil {
			if auth.ErrorCode == kerr.SaslAuthenticationFailed.Code {
				err = fmt.Errorf("%w: %s: %w", ErrCredentials, s.cure(), err)
			}
			if auth.ErrorMessage != nil {
				err = fmt.Errorf("%w (%.200q)", Explain(err), *auth.ErrorMessage)
			}
			return fmt.Errorf("authenticate %q by %s with %s: %w", s.user(), mechanism.Name(), c.peer, Explain(err))
		}
		if out = nil; !done {
			done, out, err = session.Challenge(auth.SASLAuthBytes)
		}
		if err != nil {
			class := ErrProtocol
			if bytes.HasPrefix(auth.SASLAuthBytes, []byte("e=")) { // RFC 5802: the server's reason for a refusal
				class = ErrCredentials
			}
			return fmt.Errorf("authenticate %q by %s with %s: %w: %w", s.user(), mechanism.Name(), c.peer, class, err)
		}
		c.expires = sessionEnd(began, auth.SessionLifetimeMillis)
	}
	return nil
}

// saslOffer names a mechanism to the broker, and returns those that it offers and its error code.
func (c *Conn) saslOffer(ctx context.Context, mechanism string) (offered []string, code int16, err error) {
	for _, key := range []int16{keySASLHandshake, keySASLAuthenticate} {
		if v, ok := c.Version(key); !ok || key == keySASLHandshake && v < 1 {
			return nil, 0, fmt.Errorf("start SASL with %s: %w: %s is needed (KIP-152, Kafka 1.0)", c.peer, ErrUnsupported, kmsg.NameForKey(key))
		}
	}
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = mechanism
	resp, err := c.RoundTrip(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	h := resp.(*kmsg.SASLHandshakeResponse)
	return h.SupportedMechanisms, h.ErrorCode, nil
}

// sessionEnd is 90 % into the lifetime that the broker gives a SASL session (KIP-368), zero where it gives none.
func sessionEnd(began time.Time, lifetimeMillis int64) time.Time {
	const year = 365 * 24 * int64(time.Hour/time.Millisecond)
	if lifetimeMillis <= 0 || lifetimeMillis > year { // a longer one would overflow a Duration, and never matters
		return time.Time{}
	}
	return began.Add(time.Duration(lifetimeMillis) * time.Millisecond * 9 / 10)
}
