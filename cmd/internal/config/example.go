package config

import (
	"embed"
	"fmt"
	"strings"
)

//go:embed examples/*.yaml
var examples embed.FS

// Examples lists the names that Example knows.
func Examples() []string {
	return []string{"active-standby", "active-active", "hub-and-spoke", "fan-out", "migration"}
}

// Example gives a commented configuration file.
func Example(name string) (string, error) {
	text, err := examples.ReadFile("examples/" + name + ".yaml")
	if err != nil {
		return "", fmt.Errorf("there is no example %q: the nearest is %q; all are %s",
			shorten(name), nearest(shorten(name), Examples()), strings.Join(Examples(), ", "))
	}
	return string(text), nil
}
