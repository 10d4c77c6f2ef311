//go:build !linux

package cgroup

import (
	"errors"
	"runtime"

	"k8s.io/utils/clock"
)

func newTree(Options) (tree, error) { return nil, notHere() }

func newProcesses(_ clock.Clock, _, _ name) (processes, error) { return nil, notHere() }

func notHere() error { return errors.New("cgroups are Linux's; this is " + runtime.GOOS) }
