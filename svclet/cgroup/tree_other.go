//go:build !linux

package cgroup

import (
	"errors"
	"runtime"

	"k8s.io/utils/clock"
)

func newTree(Options) (tree, error) { return nil, errNotLinux() }

func newProcesses(_ clock.Clock, _, _ name) (processes, error) { return nil, errNotLinux() }

// Directory is supported on Linux only.
func (Driver) Directory(string) (string, error) { return "", errNotLinux() }

// Unified reports whether the machine has cgroup v2.
func Unified() bool { return false }

// WatchMemory needs Linux.
func WatchMemory(string, int64, func()) (stop func(), err error) { return nil, errNotLinux() }

func errNotLinux() error { return errors.New("cgroups need Linux: this is " + runtime.GOOS) }
