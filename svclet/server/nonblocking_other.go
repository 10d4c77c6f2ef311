//go:build !unix

package server

// nonBlocking is not needed on systems where named pipes are not files.
const nonBlocking = 0
