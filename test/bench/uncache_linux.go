package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// uncache writes a file to the disk and takes it out of the page cache.
func uncache(f *os.File) error {
	if err := f.Sync(); err != nil {
		return err
	}
	return os.NewSyscallError("fadvise", unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}
