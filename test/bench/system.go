package main

import (
	"context"

	"k8s.io/client-go/rest"
)

// A system is one of the two that are compared: a way to run an API server
// and its etcd on one machine.
type system interface {
	// Name is the system's column in the report.
	Name() string
	// Binaries are the files that an operator installs to run it.
	Binaries() []string
	// Processes are its processes on a data directory, in the order of their
	// start. It makes what they need there, once.
	Processes(dir string) ([]process, error)
	// URL is the address that it serves, such as https://127.0.0.1:6443.
	URL() string
	// Config is how an administrator connects to it once it is ready.
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
	// aside is a process whose time and memory are not counted: the measured
	// ones need it.
	aside bool
}
