// Package admin serves what an operator asks a running process: metrics, health, readiness and status, over HTTP.
package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Process is what is asked. Its methods may be called at any time, also before it runs.
type Process interface {
	WriteMetrics(w io.Writer) // Prometheus text format
	Status() any              // what /api/v1/status gives, as JSON
	Ready() error             // nil once every link copies; else what is missing
}

// Server is the HTTP side. New makes it, Run serves.
type Server struct {
	listen  string
	process Process
	log     *slog.Logger
}

// New makes a server for listen, which is host:port.
func New(listen string, p Process, log *slog.Logger) *Server {
	return &Server{listen: listen, process: p, log: log}
}

// Run serves until ctx ends. A port that cannot be had is an error at once.
func (s *Server) Run(ctx context.Context) error {
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listen on admin.listen: %w: choose another port, or admin: {listen: \"\"} for none", err)
	}
	s.log.Info("admin listens", "addr", l.Addr().String())
	// All that a request may take is bounded: an idle or slow client costs little.
	h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { h.Close() })
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin on %s: %w", s.listen, err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		s.process.WriteMetrics(w)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.process.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.Encode(s.process.Status()) //nolint:errcheck // the client went away
	})
	// For the question why a process is slow or large, without a restart. A CPU profile takes longer than WriteTimeout
	// allows by default: ask for ?seconds=20.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
