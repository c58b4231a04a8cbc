package cluster

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoLogger hands franz-go's log on to ours, as debug: what it warns of it retries, and its caller gets it too and says it once,
// where franz-go has a line for every try of every connection.
type kgoLogger struct{ log *slog.Logger }

func (l kgoLogger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelDebug
	}
	return kgo.LogLevelNone
}

func (l kgoLogger) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Log(context.Background(), slog.LevelDebug, msg, keyvals...)
}
