//go:build !linux

package node

import "errors"

// fileSystemSize is the size in bytes of the file system that dir is on.
func fileSystemSize(string) (int64, error) {
	return 0, errors.New("nodes run on Linux only")
}
