package node

import "syscall"

// fileSystemSize returns the size in bytes of dir's file system.
func fileSystemSize(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Blocks) * s.Frsize, nil
}
