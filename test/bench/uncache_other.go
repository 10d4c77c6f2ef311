//go:build !linux

package main

import "os"

// uncache writes a file to the disk. Memory is measured on Linux only, so that it does not
// matter here whether the file stays in memory.
func uncache(f *os.File) error { return f.Sync() }
