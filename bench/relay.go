package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
)

// RelayConfig is one relay: it copies From to To until From ends.
type RelayConfig struct {
	From, To string
	Bytes    int  // of its buffer
	Gather   bool // writes as a forwarder of batches has to: headers from one place, payloads from another
	TLS      *Certificate
}

// The relays that a figure per byte is measured against; forward's first one is issue 3's.
var (
	relaySmall  = RelayConfig{Bytes: 256 << 10}
	relayLarge  = RelayConfig{Bytes: 1 << 20}
	relayGather = RelayConfig{Bytes: 1 << 20, Gather: true}
)

// Relay reads and writes through user memory.
func Relay(ctx context.Context, cfg RelayConfig) error {
	security, err := cfg.TLS.client()
	if err != nil {
		return err
	}
	from, err := dial(ctx, cfg.From, security)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := dial(ctx, cfg.To, security)
	if err != nil {
		return err
	}
	defer to.Close()
	defer context.AfterFunc(ctx, func() { from.Close(); to.Close() })()
	buf := make([]byte, cfg.Bytes)
	if cfg.Gather {
		err = gather(to, from, buf)
	} else {
		// The writer is hidden from the reader and the reader from the writer, else Go would splice inside the kernel.
		_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf)
	}
	if err != nil {
		return fmt.Errorf("relay %s to %s: %w", cfg.From, cfg.To, err)
	}
	return nil
}

func dial(ctx context.Context, addr string, security *tls.Config) (net.Conn, error) {
	if security != nil {
		return (&tls.Dialer{Config: security}).DialContext(ctx, "tcp", addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// gather copies, and of each 64 KiB the first 61 bytes, a batch's header, leave from memory of their own.
func gather(to io.Writer, from io.Reader, buf []byte) error {
	const step = 64 << 10
	headers := make([][batchHeaderBytes]byte, len(buf)/step+1)
	spare := make(net.Buffers, 0, 2*len(headers))
	for {
		n, err := from.Read(buf)
		buffers := spare[:0]
		for i, rest := 0, buf[:n]; len(rest) > 0; i++ {
			chunk := rest[:min(step, len(rest))]
			rest = rest[len(chunk):]
			head := copy(headers[i][:], chunk)
			buffers = append(buffers, headers[i][:head])
			if head < len(chunk) {
				buffers = append(buffers, chunk[head:])
			}
		}
		if _, err := buffers.WriteTo(to); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
