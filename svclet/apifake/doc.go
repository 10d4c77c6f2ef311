// Package apifake owns a small API server for the tests of the node agent. It keeps
// pods, nodes and leases in memory, serves list, watch, get, create, update,
// strategic merge patches and deletion with the preconditions that nodes rely on,
// and fails as a test configures it.
package apifake
