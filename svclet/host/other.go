//go:build !linux

package host

import (
	"context"
	"errors"
)

var errLinux = errors.New("only Linux has what svclet needs of its host")

// Prepare returns an error: it is supported on Linux only.
func Prepare(context.Context, Options) []error { return []error{errLinux} }

// Held is a lock file that is locked.
type Held struct{}

// Lock returns an error: it is supported on Linux only.
func Lock(context.Context, string) (*Held, error) { return nil, errLinux }

// Close does nothing.
func (h *Held) Close() error { return nil }

// Contended returns an error: it is supported on Linux only.
func (h *Held) Contended(context.Context, func()) error { return errLinux }
