package main

import (
	"context"

	"k8s.io/client-go/rest"
)

// A system is one of the two that are compared: a way to run an API server
// and its etcd on one machine.
type system interface {
	// Name returns the system's column in the report.
	Name() string
	// Binaries returns the files that an operator installs to run it.
	Binaries() []string
	// Processes returns its processes on a data directory, in the order of their
	// start. The first call creates the files that they need there.
	Processes(dir string) ([]process, error)
	// URL returns the address that it serves, such as https://127.0.0.1:6443.
	URL() string
	// Config returns an administrator's client configuration once it is ready.
	Config(dir string) (*rest.Config, error)
}

// A process is a command of a system.
type process struct {
	name string
	path string
	args []string
	// listens is the address that must accept connections before the next
	// process starts; empty to start the next at once.
	listens string
	// prepare, if not nil, is called before the process starts.
	prepare func(context.Context) error
	// aside means that CPU time and memory of the process are not counted: it only
	// serves the measured ones.
	aside bool
}
