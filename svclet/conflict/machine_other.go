//go:build !linux

package conflict

import (
	"context"
	"errors"
)

// Read is supported on Linux only.
func Read(context.Context, string) (Machine, error) { return Machine{}, errors.ErrUnsupported }
