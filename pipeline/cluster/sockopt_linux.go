package cluster

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// userTimeout must not be shorter than the longest mute of a quota, during which the peer's window stands at zero.
const userTimeout = 60 * time.Second

// control sets TCP_USER_TIMEOUT (RFC 5482): how long sent data may stay unacknowledged.
func control(_, _ string, raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	}); e != nil {
		return e
	}
	return err
}

// setLowWater lets a socket become readable only with n bytes in it, or at its end (SO_RCVLOWAT).
func setLowWater(fd, n int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) //nolint:errcheck // see want
}
