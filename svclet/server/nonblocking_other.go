//go:build !unix

package server

// nonBlocking does nothing where pipes are no files.
const nonBlocking = 0
