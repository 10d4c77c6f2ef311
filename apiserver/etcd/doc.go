// Package etcd owns the etcd member of `svc up`, which runs inside the process and
// is the only member of its cluster.
//
// The member listens only on a unix socket, so that other machines and other users
// of this one cannot bypass the API server. It syncs every write to the disk
// before it acknowledges it.
//
// History is compacted by the API server, every five minutes
// (--etcd-compaction-interval), on an embedded and on an external etcd alike:
// API servers of one etcd coordinate which of them compacts, and their watch
// caches follow it. The member's own compactor is therefore off: two compactors
// would race. A watch from a compacted version gets 410 Gone.
//
// At the quota etcd refuses the write that the API server makes before it compacts.
// The member then compacts when it starts, before the API server does: that drops all of
// the history.
package etcd
