// Package registry makes REST storage from declarations: everything that
// package resource says about a kind becomes strategies, subresources, table
// and selectors on a genericregistry.Store. It knows no kind by name.
package registry
