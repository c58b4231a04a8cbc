package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// link is a configuration of kferry with one link, and how it is run.
type link struct {
	alias    string // of the source; the target's is "target"
	from, to string // bootstrap addresses
	tls      *Certificate
	memory   string // "" for kferry's default
	admin    string // host:port; "" for any free port
	forever  bool   // until it is stopped, not until it has caught up
}

// command writes the configuration into the host's directory and returns the command line that runs it.
func (l link) command(ctx context.Context, h *Host) (name string, args []string, err error) {
	if name, err = h.kferry(ctx); err != nil {
		return "", nil, err
	}
	var security, memory string
	if l.tls != nil {
		security = fmt.Sprintf(", tls: { ca: %q }", l.tls.Cert)
	}
	if l.memory != "" {
		memory = "memory: " + l.memory + "\n"
	}
	config := fmt.Sprintf(`clusters:
  %[1]s: { bootstrap: [%[2]q]%[4]s }
  target: { bootstrap: [%[3]q]%[4]s }
links:
  - from: %[1]s
    to: target
    topics: { include: [%[5]q] }
%[6]sadmin: { listen: %[7]q }
log: { level: warn, format: text }
`, l.alias, l.from, l.to, security, forwardTopic, memory, cmp.Or(l.admin, "127.0.0.1:0"))
	path := filepath.Join(h.Dir, "link.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return "", nil, err
	}
	args = []string{"run", "-c", path}
	if !l.forever {
		args = append(args, "--until-caught-up")
	}
	return name, args, nil
}
