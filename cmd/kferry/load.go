package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"go.uber.org/automaxprocs/maxprocs"

	"kferry/cmd/internal/config"
	"kferry/pipeline"
)

// load reads the file that -c names.
func load(file string) (pipeline.Config, error) {
	if file == "" {
		return pipeline.Config{}, exit(exitRefused, errors.New("which configuration? Name it with -c FILE; `kferry config example migration` prints one to begin with"))
	}
	return config.Load(file, os.LookupEnv)
}

// newLogger writes what a valid configuration asks for to w.
func newLogger(cfg pipeline.LogConfig, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		panic("BUG: log level " + cfg.Level)
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// setProcs makes GOMAXPROCS what the container's quota allows.
func setProcs(log *slog.Logger) {
	_, err := maxprocs.Set(maxprocs.Logger(func(format string, args ...any) {
		log.Debug("cpu quota", "found", fmt.Sprintf(format, args...))
	}))
	if err != nil {
		log.Warn("cannot read the cpu quota, taking all cores", "err", err)
	}
}
