//go:build unix

package server

import "syscall"

// nonBlocking keeps the opening of a pipe from blocking until there is a writer.
const nonBlocking = syscall.O_NONBLOCK
