package node

import "syscall"

// fileSystemSize is the size in bytes of the file system that dir is on.
func fileSystemSize(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Blocks) * s.Frsize, nil
}
