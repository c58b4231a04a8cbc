package cluster

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control sets TCP_USER_TIMEOUT (RFC 5482): how long sent data may stay unacknowledged.
func control(_, _ string, raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) { err = userTimeoutOf(fd, userTimeout) }); e != nil {
		return e
	}
	return err
}

func userTimeoutOf(fd uintptr, d time.Duration) error {
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// setUserTimeout sets another TCP_USER_TIMEOUT; it counts too while the peer's window stands at zero.
func setUserTimeout(c net.Conn, d time.Duration) {
	tcp, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { userTimeoutOf(fd, d) }) //nolint:errcheck // the write's deadline is there too
	}
}

// setLowWater lets a socket become readable only with n bytes in it, or at its end (SO_RCVLOWAT).
func setLowWater(fd, n int) {
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) //nolint:errcheck // see want
}
