//go:build !linux

package cluster

import (
	"net"
	"syscall"
	"time"
)

// control does nothing where there is no TCP_USER_TIMEOUT: RequestTimeout finds a dead peer then.
func control(_, _ string, _ syscall.RawConn) error { return nil }

// setLowWater does nothing where the socket option is not known to work: the reader is woken more often.
func setLowWater(int, int) {}

// setUserTimeout does nothing where there is no TCP_USER_TIMEOUT.
func setUserTimeout(net.Conn, time.Duration) {}
