//go:build !linux

package host

import (
	"context"
	"errors"

	"k8s.io/utils/clock"
)

var errLinux = errors.New("only Linux has what svclet needs of its host")

// Prepare returns an error: it is supported on Linux only.
func Prepare(context.Context, Options) []error { return []error{errLinux} }

// MayAdministerNetwork returns true: only Linux has capabilities.
func MayAdministerNetwork() (bool, error) { return true, nil }

// Held is a lock file that is locked.
type Held struct{}

// Lock returns an error: it is supported on Linux only.
func Lock(context.Context, string, clock.Clock) (*Held, error) { return nil, errLinux }

// Close does nothing.
func (h *Held) Close() error { return nil }

// Contention is a watch of a lock file.
type Contention struct{}

// Watch returns an error: it is supported on Linux only.
func (h *Held) Watch() (*Contention, error) { return nil, errLinux }

// Wait reports that the lock file is not wanted.
func (c *Contention) Wait(context.Context) bool { return false }
