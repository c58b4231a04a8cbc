package kafkatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// Brokers need ports that are known before they start and that stay theirs over a restart. They come from below the
// range that the kernel gives to outgoing connections and to ":0" (32768 and up on Linux), and each is held by a file
// lock for as long as its cluster lives, so two test processes never meet on one.
const (
	firstPort = 12_000
	lastPort  = 32_000
)

type ports struct {
	locks []*os.File
}

// take reserves n ports that nobody listens on.
func (p *ports) take(n int) ([]int, error) {
	dir := filepath.Join(os.TempDir(), "kferry-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("reserve ports: %w", err)
	}
	var taken []int
	start := rand.IntN(lastPort - firstPort)
	for i := 0; i < lastPort-firstPort && len(taken) < n; i++ {
		port := firstPort + (start+i)%(lastPort-firstPort)
		lock, err := tryLockFile(filepath.Join(dir, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			lock.Close()
			continue
		}
		l.Close()
		p.locks = append(p.locks, lock)
		taken = append(taken, port)
	}
	if len(taken) < n {
		return nil, errors.New("reserve ports: no free port on loopback")
	}
	return taken, nil
}

func (p *ports) release() {
	for _, l := range p.locks {
		l.Close()
	}
	p.locks = nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
