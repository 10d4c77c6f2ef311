//go:build !linux

package nft

// Found reports that there is no table: only Linux has tables.
func (t Table) Found() (bool, error) { return false, nil }

// RemoveUnused does nothing: only Linux has tables.
func (t Table) RemoveUnused() error { return nil }
