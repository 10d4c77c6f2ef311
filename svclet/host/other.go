//go:build !linux

package host

import (
	"context"
	"errors"
)

var errLinux = errors.New("only Linux has what svclet needs of its host")

// Prepare is for Linux.
func Prepare(context.Context, Options) []error { return []error{errLinux} }

// Held is a lock file that is locked.
type Held struct{}

// Lock is for Linux.
func Lock(context.Context, string) (*Held, error) { return nil, errLinux }

// Close gives the lock back.
func (h *Held) Close() error { return nil }

// Contended is for Linux.
func (h *Held) Contended(context.Context, func()) error { return errLinux }
