package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockRoot locks the root directory, which it creates if necessary, for this process
// until the lock is closed or the process ends. Two agents on one directory would stop
// each other's containerd and pods.
func lockRoot(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "svclet.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--root-dir: %w", err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return lock, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = fmt.Errorf("%s is in use by another svclet: stop that, or choose another directory", dir)
	}
	return nil, errors.Join(fmt.Errorf("--root-dir: %w", err), lock.Close())
}
