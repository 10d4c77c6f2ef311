//go:build !linux

package projectquota

import "errors"

// Quotas need Linux.
type Quotas struct{}

// New returns quotas that no directory can have.
func New() *Quotas { return &Quotas{} }

// Assign returns an error: project quotas are supported on Linux only.
func (*Quotas) Assign(string) error { return errors.New("project quotas need Linux") }

// Usage finds none.
func (*Quotas) Usage(string) (bytes, inodes uint64, ok bool, err error) { return 0, 0, false, nil }
