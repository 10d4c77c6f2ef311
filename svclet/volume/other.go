//go:build !linux

package volume

import (
	"context"
	"errors"
)

var errLinuxOnly = errors.New("volumes can be mounted on Linux only")

type kernel struct{}

func (kernel) Mounted(string) (bool, error)  { return false, errLinuxOnly }
func (kernel) Mount(_, _, _ string) error    { return errLinuxOnly }
func (kernel) Bind(_, _ string) error        { return errLinuxOnly }
func (kernel) Unmount(string) error          { return errLinuxOnly }
func (kernel) Under(string) ([]Mount, error) { return nil, errLinuxOnly }

// ShareMounts returns an error: it is supported on Linux only.
func ShareMounts(string) error { return errLinuxOnly }

func (m *Manager) bindSubPath(_, _, _ string) error { return errLinuxOnly }

// RemoveTree returns an error: it is supported on Linux only.
func RemoveTree(context.Context, string) error { return errLinuxOnly }

func measureVolume(context.Context, mountedVolume) (Usage, error) { return Usage{}, errLinuxOnly }
