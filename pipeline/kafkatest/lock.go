//go:build unix && !solaris && !aix

package kafkatest

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits for the exclusive lock of a file, which closing the file (or the end of the process) gives back.
func lockFile(path string) (*os.File, error) { return flock(path, unix.LOCK_EX) }

// tryLockFile is lockFile without the wait: it fails with EWOULDBLOCK where another holds the lock.
func tryLockFile(path string) (*os.File, error) { return flock(path, unix.LOCK_EX|unix.LOCK_NB) }

func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
}
