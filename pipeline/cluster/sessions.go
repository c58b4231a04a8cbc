package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"sync"
)

// sessionsKept is how many servers' TLS sessions are kept, by the name in their certificates.
const sessionsKept = 256

// sessions keeps the TLS sessions of one cluster, so that a connection that comes back spares both sides the signatures. A session
// carries on what was verified and shown when it began: other authorities or another certificate of ours begin new ones.
type sessions struct {
	mu    sync.Mutex
	cache tls.ClientSessionCache
	roots *x509.CertPool
	ours  []byte
}

// of returns the cache for connections by cfg.
func (s *sessions) of(cfg *tls.Config) tls.ClientSessionCache {
	var ours []byte
	if len(cfg.Certificates) > 0 {
		ours = cfg.Certificates[0].Certificate[0]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache == nil || !s.roots.Equal(cfg.RootCAs) || !bytes.Equal(s.ours, ours) {
		s.cache, s.roots, s.ours = tls.NewLRUClientSessionCache(sessionsKept), cfg.RootCAs, ours
	}
	return s.cache
}
