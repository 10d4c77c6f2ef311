//go:build !linux

package cgroup

import (
	"errors"
	"runtime"
)

func newTree(Driver) (tree, error) { return nil, notHere() }

func newProcesses(_, _ name) (processes, error) { return nil, notHere() }

func notHere() error { return errors.New("cgroups are Linux's; this is " + runtime.GOOS) }
