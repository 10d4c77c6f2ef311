//go:build !linux

package dns

import (
	"errors"
	"syscall"
)

// anyAddress returns an error: the server has IPv6 on Linux only.
func anyAddress(_, _ string, _ syscall.RawConn) error { return errors.ErrUnsupported }

// ensureLink returns an error, as anyAddress does.
func ensureLink(string) error { return errors.ErrUnsupported }
