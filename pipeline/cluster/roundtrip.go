package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RoundTrip sends req at the newest version both sides know and waits for its answer: for look-ups, while nobody else writes or
// reads. Error codes within the answer are the caller's to judge (Classify). Errors are those of Write and Read; an API that the
// broker lacks is ErrUnsupported and leaves the connection usable. The end of ctx makes the connection dead.
func (c *Conn) RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	version, ok := c.Version(req.Key())
	if !ok {
		return nil, fmt.Errorf("ask %s of %s: %w", kmsg.NameForKey(req.Key()), c.peer, ErrUnsupported)
	}
	req.SetVersion(version)
	body, err := c.exchange(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body); err != nil {
		return nil, c.fail(fmt.Errorf("decode %s v%d from %s: %w: %w", kmsg.NameForKey(req.Key()), version, c.peer, ErrProtocol, err))
	}
	return resp, nil
}

// exchange sends req at its version and returns a copy of the answer's body.
func (c *Conn) exchange(ctx context.Context, req kmsg.Request) ([]byte, error) {
	stop := c.Bind(ctx)
	defer stop()
	if _, err := c.Write(req.Key(), req.GetVersion(), net.Buffers{req.AppendTo(nil)}); err != nil {
		return nil, err
	}
	r, err := c.Read()
	if err != nil {
		return nil, err
	}
	defer r.Buf.Release()
	return slices.Clone(r.Body), nil
}
