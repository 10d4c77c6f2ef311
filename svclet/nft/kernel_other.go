//go:build !linux

package nft

import (
	"errors"

	"sigs.k8s.io/knftables"
)

// Tables returns access to the kernel's tables of a family with a name.
func Tables(family knftables.Family, name string) (knftables.Interface, error) {
	return knftables.New(family, name)
}

// Remove does nothing: only Linux has tables.
func Remove(string) error { return nil }

// Names returns nothing: only Linux has tables.
func Names() ([]string, error) { return nil, nil }

// Generation is not supported: only Linux has tables.
func Generation() (uint32, error) { return 0, errors.ErrUnsupported }
