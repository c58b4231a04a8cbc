package cluster

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoLogger hands franz-go's log on to ours, one level lower: what it calls an error it retries, and its caller gets it too.
type kgoLogger struct{ log *slog.Logger }

func (l kgoLogger) Level() kgo.LogLevel {
	switch ctx := context.Background(); {
	case l.log.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelDebug
	case l.log.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	}
	return kgo.LogLevelNone
}

func (l kgoLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	if level == kgo.LogLevelError || level == kgo.LogLevelWarn {
		to = slog.LevelWarn
	}
	l.log.Log(context.Background(), to, msg, keyvals...)
}
