//go:build !linux

package cgroup

import (
	"errors"
	"runtime"
)

func newTree(Driver) (tree, error) {
	return nil, errors.New("cgroups are Linux's; this is " + runtime.GOOS)
}
