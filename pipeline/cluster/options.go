package cluster

import (
	"time"

	"kferry/batch"
)

const (
	mib = 1 << 20

	// maxRequestBytes is the brokers' default for socket.request.max.bytes: they drop the connection above it.
	maxRequestBytes = 100 * mib

	defaultDialTimeout = 10 * time.Second

	// minBytesPerSecond is the slowest body that is waited for, as long as it moves at all.
	minBytesPerSecond = 16 << 10
)

// ConnOptions are the limits of one Conn. A zero field means its default.
type ConnOptions struct {
	Pool *batch.Pool // where responses are read into; default: the cluster's own

	MaxResponseBytes int // largest Fetch response, frame and all; default 65 MiB, at most batch.MaxBuf
	MaxSmallBytes    int // largest response of every other API; default 1 MiB, at most batch.MaxBuf
	MaxOutstanding   int // requests in flight, above which Write blocks; default 1024

	DialTimeout time.Duration // for TCP, TLS, ApiVersions and SASL together; default 10 s

	// RequestTimeout is how long the peer may be silent: from the request, or from the answer before it where requests queue up,
	// to the first byte, and between the bytes of an answer. Default 30 s. It must be longer than a fetch's MaxWait and a
	// produce's timeout.
	RequestTimeout time.Duration

	MaxVersions map[int16]int16 // caps by API key, for tests
}

func (o ConnOptions) withDefaults(pool *batch.Pool) ConnOptions {
	if o.Pool == nil {
		o.Pool = pool
	}
	orDefault(&o.MaxResponseBytes, 65*mib)
	orDefault(&o.MaxSmallBytes, mib)
	orDefault(&o.MaxOutstanding, 1024)
	orDefault(&o.DialTimeout, defaultDialTimeout)
	orDefault(&o.RequestTimeout, 30*time.Second)
	o.MaxResponseBytes = min(o.MaxResponseBytes, batch.MaxBuf)
	o.MaxSmallBytes = min(o.MaxSmallBytes, batch.MaxBuf)
	return o
}

func orDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// maxResponse is the size limit of an answer to key, in bytes after the size field.
func (o *ConnOptions) maxResponse(key int16) int {
	if key == keyFetch {
		return o.MaxResponseBytes
	}
	return o.MaxSmallBytes
}
