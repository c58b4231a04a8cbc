package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// link is a configuration of kferry with one link, or more from one source, and how it is run.
type link struct {
	alias    string   // of the source; the target's is "target"
	from, to string   // bootstrap addresses
	also     []string // of more targets, each with a link of its own
	topics   []string // none: the one of the forward scenario
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
	topics := l.topics
	if topics == nil {
		topics = []string{forwardTopic}
	}
	include := strings.ReplaceAll(fmt.Sprintf("%q", topics), " ", ", ")
	clusters := fmt.Sprintf("clusters:\n  %s: { bootstrap: [%q]%s }\n", l.alias, l.from, security)
	links := "links:\n"
	for i, to := range append([]string{l.to}, l.also...) {
		target := "target"
		if i > 0 {
			target += strconv.Itoa(i + 1)
		}
		clusters += fmt.Sprintf("  %s: { bootstrap: [%q]%s }\n", target, to, security)
		links += fmt.Sprintf("  - from: %s\n    to: %s\n    topics: { include: %s }\n", l.alias, target, include)
	}
	config := clusters + links + memory + fmt.Sprintf("admin: { listen: %q }\nlog: { level: warn, format: text }\n", cmp.Or(l.admin, "127.0.0.1:0"))
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
