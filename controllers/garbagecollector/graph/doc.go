// Package graph owns the garbage collector's graph of owners and dependents, and
// decides from it what to delete. It has no client, no clock and no goroutines.
//
// Events go in: a kind is served (Serve), listed (Replace), cannot be listed
// (Failing) or is no longer served (RemoveKind); an object was observed (Observe)
// or deleted (Deleted); watches ended unexpectedly (InvalidateLookups). The
// subjects for which there may be something to do come out (Ready). The caller
// asks for the action of each subject (Next), executes it, and returns its result
// (Complete), which reports whether to requeue the subject. It handles a subject once
// at a time; different ones may be handled in parallel.
//
// # Rules
//
// An object with owner references is deleted when none of them holds it. An owner
// reference holds its object as long as the owner exists and is not being
// deleted in the foreground. It is dangling when there is no object of the
// reference's UID under the reference's kind and name, in the object's
// namespace or, for kinds without namespaces, outside of all. The version in a
// reference does not matter, since an object is the same in all versions.
//
//   - Some references hold the object, and others are dangling or their owners
//     are being deleted in the foreground: these others are removed from it.
//   - No reference holds the object: it is deleted, in the foreground if an
//     owner is being deleted in the foreground and the object has dependents
//     itself, and else as its own finalizers say, by default in the background.
//   - An owner deleted in the foreground keeps the finalizer
//     foregroundDeletion until no reference with blockOwnerDeletion names it.
//     Owners that block one another in a cycle stop blocking.
//   - An owner deleted with the finalizer orphan keeps it until the references
//     to it are removed. Dependents that are observed later are orphaned, too.
//   - A cluster-scoped object with a reference to a namespaced kind is not deleted.
//
// # Why no object is deleted by mistake
//
// The graph lags behind the API server, and a list may even be older than what
// the graph knew. Still, a wrong delete needs one of two mistakes, and neither
// can happen:
//
//   - The object's references differ from those in the graph. But each delete
//     and each patch is bound to the UID and the resource version that the
//     graph decided on; after a conflict the object is read again.
//   - An owner exists that the graph considers absent. But the graph acts only on
//     what the API server has said about this owner: that a watch saw its
//     deletion, or that a lookup did not find it. That it is missing in a list
//     proves nothing. Both stay true, since a UID is never reused and a deletion
//     is never undone; so one lookup is enough for all dependents, and none of
//     them is read before it is deleted. Only a restore of etcd from a snapshot
//     makes it untrue. That ends the watches, and then the results of all earlier
//     lookups are discarded, those in flight included (InvalidateLookups).
//
// A lookup of a kind that is not served, or one that fails, proves nothing, and
// the object is kept. A lookup of a kind that is being listed for the first time is
// delayed, since its objects are likely to be in the list.
package graph
