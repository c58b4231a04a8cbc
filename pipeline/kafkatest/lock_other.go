//go:build !unix || solaris || aix

package kafkatest

import (
	"errors"
	"os"
)

// Real brokers need flock; the rest of the package works without.
func lockFile(string) (*os.File, error)    { return nil, errors.ErrUnsupported }
func tryLockFile(string) (*os.File, error) { return nil, errors.ErrUnsupported }
