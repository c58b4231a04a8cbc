package cluster

import (
	"fmt"
	"io"
	"log/slog"
)

const secretMask = "***"

// Secret holds a password, or knows where to read it. It shows itself as *** wherever it is printed: fmt with any verb, slog, JSON,
// YAML. Only Reveal gives the text. The zero Secret is empty.
type Secret struct {
	// A function, because fmt calls no methods on a value it reached through an unexported field: it prints an address then,
	// never the text.
	read    func() (string, error) // nil: empty
	changes bool
}

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{read: func() (string, error) { return text, nil }} }

// NewSecretFrom returns a secret that is read when it is needed, at every login, so that it can change under a running process.
// read is called from many goroutines; its error must not show the text.
func NewSecretFrom(read func() (string, error)) Secret { return Secret{read: read, changes: true} }

// Reveal returns the text. Its callers are those that log in and nobody else.
func (s Secret) Reveal() (string, error) {
	if s.read == nil {
		return "", nil
	}
	return s.read()
}

// Changes reports whether the text is read anew each time.
func (s Secret) Changes() bool { return s.changes }

// IsZero reports whether there is no text, or none that can be read.
func (s Secret) IsZero() bool {
	text, err := s.Reveal()
	return text == "" || err != nil
}

// Equal reports whether both hold the same text; go-cmp uses it.
func (s Secret) Equal(o Secret) bool {
	a, aErr := s.Reveal()
	b, bErr := o.Reveal()
	return a == b && aErr == nil && bErr == nil
}

func (s Secret) String() string               { return secretMask }
func (s Secret) GoString() string             { return secretMask }
func (s Secret) Format(f fmt.State, _ rune)   { io.WriteString(f, secretMask) }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(secretMask) }
func (s Secret) MarshalText() ([]byte, error) { return []byte(secretMask), nil }
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + secretMask + `"`), nil }
func (s Secret) MarshalYAML() (any, error)    { return secretMask, nil }
