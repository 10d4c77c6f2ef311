//go:build !linux

package node

import "errors"

// fileSystemSize returns the size in bytes of dir's file system.
func fileSystemSize(string) (int64, error) {
	return 0, errors.New("nodes run on Linux only")
}
