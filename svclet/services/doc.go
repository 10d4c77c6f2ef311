// Package services owns the node's copy of services and endpoint slices, which the
// service proxy and the DNS server read.
package services
