package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// maxLife bounds what an endpoint says of a token's life: more would overflow, and never matters.
const maxLife = 365 * 24 * time.Hour

// askEndpoint asks for a token by client credentials (RFC 6749, 4.4). life is 0 where the endpoint gives none. Every request has a
// connection of its own: there is one in many minutes, and the authorities are read anew.
func (t *tokens) askEndpoint(ctx context.Context) (token string, life time.Duration, err error) {
	secret, err := t.from.ClientSecret.Reveal()
	if err != nil {
		return "", 0, fmt.Errorf("read sasl.client_secret: %w", err)
	}
	roots, err := withSystem(t.ca)
	if err != nil {
		return "", 0, err
	}
	form := url.Values{"grant_type": {"client_credentials"}}
	if t.from.Scope != "" {
		form.Set("scope", t.from.Scope)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.from.TokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return "", 0, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", softwareName+"/"+softwareVersion)
	req.SetBasicAuth(url.QueryEscape(t.from.ClientID), url.QueryEscape(secret)) // RFC 6749, 2.3.1
	client := &http.Client{
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the secret goes to the named host only
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", 0, explainEndpoint(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, tokenBytes+1))
	if err != nil {
		return "", 0, err
	}
	if _, err := bounded(body); err != nil {
		return "", 0, err
	}
	return readAnswer(resp.StatusCode, body)
}

// readAnswer reads an endpoint's answer (RFC 6749, 5.1 and 5.2). Of the text only the code of the error is ever shown.
func readAnswer(status int, body []byte) (token string, life time.Duration, err error) {
	var answer struct {
		AccessToken string      `json:"access_token"`
		ExpiresIn   json.Number `json:"expires_in"` // some give it in quotes, which json.Number takes too
		Error       string      `json:"error"`
	}
	malformed := json.Unmarshal(body, &answer)
	switch {
	case status == http.StatusUnauthorized || status == http.StatusBadRequest && answer.Error != "":
		return "", 0, fmt.Errorf("%w: it answers %d (%.60q): check sasl.client_id, sasl.client_secret and sasl.scope", ErrCredentials, status, answer.Error)
	case status >= 300 && status < 400:
		return "", 0, fmt.Errorf("it answers %d, which leads elsewhere: put the final address into sasl.token_endpoint", status)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return "", 0, fmt.Errorf("it answers %d: check sasl.token_endpoint", status)
	case status != http.StatusOK:
		return "", 0, fmt.Errorf("it answers %d %s", status, http.StatusText(status))
	case malformed != nil: // the text of the error may hold a part of the token
		return "", 0, fmt.Errorf("%w: its answer is not the JSON of a token: check sasl.token_endpoint", ErrProtocol)
	}
	seconds, err := strconv.ParseFloat(string(answer.ExpiresIn), 64)
	if err != nil || !(seconds > 0) {
		return answer.AccessToken, 0, nil
	}
	return answer.AccessToken, time.Duration(min(seconds, maxLife.Seconds()) * float64(time.Second)), nil
}

func explainEndpoint(err error) error {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("%w: its certificate is signed by an authority we do not trust: add that one to the PEM file of tls.ca: %w", ErrTLS, err)
	case errors.As(err, &host):
		return fmt.Errorf("%w: its certificate is for another name: use one of its names in sasl.token_endpoint: %w", ErrTLS, err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w: its certificate is not valid: renew it, or mend the clock: %w", ErrTLS, err)
	}
	return err
}

// withSystem returns the system's authorities and those of a PEM file; nil, which means the former, where there is no file.
func withSystem(ca string) (*x509.CertPool, error) {
	if ca == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil { // there are none
		pool = x509.NewCertPool()
	}
	return pool, addPEM(pool, ca)
}

func addPEM(pool *x509.CertPool, file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%w: read ca: %w", ErrTLS, err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%w: read ca %s: no PEM certificate in it", ErrTLS, file)
	}
	return nil
}
