// Package csitest owns a CSI driver for tests. It serves and registers by real gRPC on
// sockets, keeps volumes in directories, and records the calls that it gets.
package csitest
