package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

const (
	tokenTimeout = 10 * time.Second // for an endpoint's or a command's answer
	tokenBytes   = 64 << 10         // the largest answer that is taken; brokers take 512 KiB (sasl.server.max.receive.size)

	// tokenUse is the part of a token's life in which new logins get it, as sasl.login.refresh.window.factor. It is less than the 90 %
	// of a session after which a connection is replaced: the new one then always has a new token.
	tokenUse = 0.8

	// unknownLife is how long a token is used of which nobody says when it ends.
	unknownLife = time.Minute
)

// tokens gives the tokens of one cluster. Logins share them: a thousand connections that come back together ask once.
type tokens struct {
	from OAuth
	ca   string // PEM file of authorities, besides the system's; empty: none

	turn    chan struct{} // holds one token: who has it may ask
	started atomic.Uint64 // the number of the last request that was begun

	// Of the one who has the turn.
	token       string
	renew, ends time.Time
	done        uint64 // the number of the last request that ended by itself, and
	err         error  // how
}

func newTokens(from OAuth, ca string) *tokens {
	t := &tokens{from: from, ca: ca, turn: make(chan struct{}, 1)}
	t.turn <- struct{}{}
	return t
}

// get returns a token that is worth a login. Concurrent callers share one request, and its failure. While there is a token that
// still holds, an endpoint that fails is no error.
func (t *tokens) get(ctx context.Context) (string, error) {
	want := t.started.Load() + 1
	if err := t.take(ctx); err != nil {
		return "", err
	}
	defer t.giveBack()
	now := time.Now()
	switch {
	case t.token != "" && now.Before(t.renew):
		return t.token, nil
	case t.done >= want && t.err != nil: // one that waited with us has asked
		return "", t.err
	}
	number := t.started.Add(1)
	within, cancel := context.WithTimeoutCause(ctx, tokenTimeout, ErrTimeout)
	defer cancel()
	token, life, err := t.ask(within)
	if ctx.Err() == nil { // else it may be this caller's impatience only
		t.done, t.err = number, err
	}
	if err != nil {
		if t.token != "" && now.Before(t.ends) {
			return t.token, nil
		}
		return "", err
	}
	t.token, t.renew, t.ends = token, now.Add(time.Duration(float64(life)*tokenUse)), now.Add(life)
	return token, nil
}

// drop forgets a token that a broker has refused.
func (t *tokens) drop(ctx context.Context) {
	if t.take(ctx) == nil {
		t.token = ""
		t.giveBack()
	}
}

func (t *tokens) take(ctx context.Context) error {
	select {
	case <-t.turn:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a token: %w", context.Cause(ctx))
	}
}

func (t *tokens) giveBack() { t.turn <- struct{}{} }

// ask gets a new token and how long it holds from now on.
func (t *tokens) ask(ctx context.Context) (token string, life time.Duration, err error) {
	where := "the token"
	switch {
	case t.from.TokenFile != "":
		where = "token_file " + t.from.TokenFile
		token, err = readToken(t.from.TokenFile)
	case len(t.from.TokenCommand) > 0:
		where = "token_command " + t.from.TokenCommand[0] // its arguments may hold a secret
		token, err = runForToken(ctx, t.from.TokenCommand)
	default:
		where = "token_endpoint " + t.from.TokenEndpoint
		token, life, err = t.askEndpoint(ctx)
	}
	if err != nil {
		return "", 0, fmt.Errorf("get a token from %s: %w", where, timedOut(ctx, err))
	}
	token = strings.TrimSpace(token)
	if token == "" || strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return "", 0, fmt.Errorf("get a token from %s: %w: it gives no token, which is one word of printable ASCII", where, ErrProtocol)
	}
	if life > 0 {
		return token, life, nil
	}
	end, known := tokenEnd(token)
	switch life = time.Until(end); {
	case t.from.TokenFile != "" && (!known || life > 0):
		return token, 0, nil // reading again is cheap: what is in the file counts at once
	case !known:
		return token, unknownLife, nil
	case life <= 0:
		return "", 0, fmt.Errorf("get a token from %s: it ended at %s: is it renewed, and are the clocks right?", where, end.UTC().Format(time.RFC3339))
	}
	return token, life, nil
}

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("is it there, and may kferry read it: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, tokenBytes+1))
	if err != nil {
		return "", err
	}
	return bounded(b)
}

// runForToken runs a command to its end. What it writes to stderr is not shown: it could be the token.
func runForToken(ctx context.Context, argv []string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second // for children that keep its output open
	out := &boundedWriter{}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run it by hand to see why: %w", err)
	}
	return bounded(out.kept)
}

// boundedWriter keeps a little more than may be taken, and lets the rest go by.
type boundedWriter struct{ kept []byte }

func (w *boundedWriter) Write(b []byte) (int, error) {
	w.kept = append(w.kept, b[:min(len(b), tokenBytes+1-len(w.kept))]...)
	return len(b), nil
}

func bounded(b []byte) (string, error) {
	if len(b) > tokenBytes {
		return "", fmt.Errorf("%w: it gives more than %d bytes", ErrSize, tokenBytes)
	}
	return string(b), nil
}

// tokenEnd reads from a JSON web token when it ends (exp, RFC 7519 4.1.4). Nothing is verified: that is the brokers' part. Many
// tokens are no JSON web tokens; known is false for them.
func tokenEnd(token string) (end time.Time, known bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, false
	}
	var c struct {
		Exp *float64 `json:"exp"`
	}
	if json.Unmarshal(claims, &c) != nil || c.Exp == nil || *c.Exp < 0 || *c.Exp > 1<<40 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(*c.Exp * 1000)), true
}
