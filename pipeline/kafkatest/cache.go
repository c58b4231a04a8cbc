package kafkatest

import (
	"os"
	"path/filepath"
)

// cached returns the folder of this name in the user's cache, after having fill make its content if it is not there.
// Any number of processes may ask at once: a file lock lets one fill, and a folder appears under its name only when it
// is complete.
func cached(name string, fill func(dir string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "kferry", "jars")
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	lock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(dir); err == nil { // another process filled it while we waited
		return dir, nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil { // of a process that died on it
		return "", err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return "", err
	}
	if err := fill(part); err != nil {
		return "", err
	}
	return dir, os.Rename(part, dir)
}
