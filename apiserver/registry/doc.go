// Package registry owns the REST storage of all kinds: it turns each kind's
// declaration (package resource) into strategies, subresources, table columns
// and selectors on a genericregistry.Store. No code in it depends on a kind's
// name.
package registry
