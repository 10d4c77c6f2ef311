//go:build !linux

package conflict

import (
	"context"
	"errors"
)

// Read is supported on Linux only.
func Read(context.Context, string, bool) (Machine, error) { return Machine{}, errors.ErrUnsupported }
