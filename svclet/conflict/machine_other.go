//go:build !linux

package conflict

import "errors"

// Read is supported on Linux only.
func Read(string) (Machine, error) { return Machine{}, errors.ErrUnsupported }
