// Package devicetest owns a device plugin for tests. It serves and registers by real gRPC on
// sockets, and reports the calls that it gets.
package devicetest
