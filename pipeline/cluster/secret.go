package cluster

import (
	"fmt"
	"io"
	"log/slog"
)

const secretMask = "***"

// Secret holds a password. It shows itself as *** wherever it is printed: fmt with any verb, slog, JSON, YAML. Only Reveal gives
// the text. The zero Secret is empty.
type Secret struct {
	// A pointer, because fmt calls no methods on a value it reached through an unexported field: it prints an address then,
	// never the text.
	text *string
}

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal returns the text. Its callers are the SASL mechanisms and nobody else.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// Equal reports whether both hold the same text; go-cmp uses it.
func (s Secret) Equal(o Secret) bool { return s.Reveal() == o.Reveal() }

func (s Secret) String() string               { return secretMask }
func (s Secret) GoString() string             { return secretMask }
func (s Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, secretMask) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(secretMask) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(secretMask), nil }
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + secretMask + `"`), nil }
func (s Secret) MarshalYAML() (any, error)    { return secretMask, nil }
