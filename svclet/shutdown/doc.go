// Package shutdown owns the graceful shutdown of the node: it delays the shutdown of the
// machine through systemd-logind, and ends the pods before, those with a lower priority
// first (KEP-2000, KEP-2712).
package shutdown
