// Package expectations records what a controller has written, or may have
// written, that its cache does not show yet, so that no sync acts on a state
// older than its own writes.
//
// Writes are for requests that succeeded: the next sync waits until the cache
// has them. UnknownOutcomes are for requests whose response was lost: the next
// sync lists from the API server until the cache agrees with it.
package expectations
