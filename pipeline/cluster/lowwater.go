package cluster

import (
	"net"
	"syscall"
)

const (
	// lowWaterBytes is what a reader of a large body waits for at once. A broker's socket buffers let about 100 KiB through
	// at a time; a reader that is woken for each of them spends more on waking than on copying.
	lowWaterBytes = 256 << 10

	// lowWaterLeast is the body from which it pays.
	lowWaterLeast = 64 << 10
)

// lowWater keeps a socket's low-water mark near what its reader still wants. The mark is never above that: the last bytes of
// a body would not wake anyone.
type lowWater struct {
	raw  syscall.RawConn // nil: left alone, as under TLS, where bytes of the body are not bytes of the socket
	mark int             // what is set; 0 and 1 are the kernel's default
	set  func(fd uintptr)
}

func newLowWater(nc net.Conn) *lowWater {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return new(lowWater)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return new(lowWater)
	}
	l := &lowWater{raw: raw}
	l.set = func(fd uintptr) { setLowWater(int(fd), l.mark) } // made once
	return l
}

// want tells that the reader still wants n bytes of the socket; 0 for the end of a body.
func (l *lowWater) want(n int) {
	if l == nil || l.raw == nil {
		return
	}
	mark := min(n, lowWaterBytes)
	if mark < lowWaterLeast {
		mark = 1
	}
	if mark == l.mark || mark == 1 && l.mark == 0 {
		return
	}
	l.mark = mark
	l.raw.Control(l.set) //nolint:errcheck // without it we are woken more often, that is all
}
