//go:build !linux

package kafkatest

import "os/exec"

// Only Linux can end a child with its parent; elsewhere a killed test binary leaves its brokers behind.
func dieWithParent(*exec.Cmd) {}
