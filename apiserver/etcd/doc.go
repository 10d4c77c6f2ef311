// Package etcd runs a single etcd member inside the process: the store of
// `svc up`.
//
// The member listens on a unix socket only, so that nothing outside the
// machine, and no other user on it, can reach the data around the API server.
// It syncs every write to the disk before it acknowledges it.
//
// History is compacted by the API server, every five minutes
// (--etcd-compaction-interval), on an embedded and on an external etcd alike:
// several API servers agree among themselves who compacts, and their watch
// caches learn of it. The member's own compactor is therefore off; two
// compactors would only race. A watch from a compacted version gets 410 Gone.
package etcd
