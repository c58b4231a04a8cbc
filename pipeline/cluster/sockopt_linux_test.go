package cluster

import (
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel gives up on a closed window no sooner than the mute that the peer has announced is over.
func TestUserTimeout(t *testing.T) {
	ours, theirs := loopback(t)
	c := wireOver(t, ours, ours, theirs, ConnOptions{})
	raw, err := ours.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ mute, want time.Duration }{
		{0, userTimeout},
		{10 * time.Second, userTimeout},
		{2 * time.Minute, userTimeout + 2*time.Minute},
		{24 * time.Hour, userTimeout + 10*time.Minute},
	} {
		c.Throttled(test.mute)
		var ms int
		if e := raw.Control(func(fd uintptr) { ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
		if got := time.Duration(ms) * time.Millisecond; got != test.want {
			t.Errorf("a mute of %v: %v, want %v", test.mute, got, test.want)
		}
	}
}
