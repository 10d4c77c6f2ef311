// Package graph decides what the garbage collector does. It knows who owns whom
// and nothing else: it has no client, no clock and no goroutines.
//
// What happens goes in: a kind is served (Serve), listed (Replace), cannot be
// listed (Failing) or is no longer served (Vanish); an object was seen
// (Observe) or has gone (Gone); watches broke (Doubt). What there may be to do
// comes out as subjects (Ready). The caller asks for each subject what to do
// now (Next), does it, and tells how it went (Answer). It handles a subject
// once at a time, and different ones in parallel if it likes.
//
// # Rules
//
// An object that has owners goes when none of them holds it any more. An owner
// reference holds its object as long as the owner exists and is not being
// deleted in the foreground. It is dangling when there is no object of the
// reference's UID under the reference's kind and name, in the object's
// namespace or, for kinds without namespaces, outside of all. The version in a
// reference does not matter, since an object is the same in all versions.
//
//   - Some references hold the object, and others are dangling or their owners
//     wait for it to go: these others are removed from it.
//   - No reference holds the object: it is deleted, in the foreground if an
//     owner waits for it and it has dependents itself, and else as its own
//     finalizers say, by default in the background.
//   - An owner deleted in the foreground keeps the finalizer
//     foregroundDeletion until no reference with blockOwnerDeletion names it.
//     Owners that block one another in a ring stop blocking.
//   - An owner deleted with the finalizer orphan keeps it until the references
//     to it are removed. Dependents that come to light later are orphaned, too.
//   - An object outside of namespaces that refers to a namespaced kind is left
//     alone.
//
// # Why nothing goes that should live
//
// The graph lags behind the API server, and a list may even be older than what
// the graph knew. Still, a wrong delete needs one of two mistakes, and neither
// can happen:
//
//   - The object's references are others than the graph thinks. But each delete
//     and each patch is bound to the UID and the resource version that the
//     graph decided on; after a conflict the object is read again.
//   - An owner lives that the graph thinks is gone. But the graph acts only on
//     what the API server has said about this owner: that a watch saw it go, or
//     that it was looked up and not found. That it is missing in a list says
//     nothing. What was said stays true, since a UID never comes back and a
//     deletion is never taken back; so one lookup does for all dependents, and
//     none of them is read before it is deleted. Only a restore of etcd from a
//     snapshot makes it untrue. That breaks the watches, and then everything
//     that was said before counts for nothing, answers that are still under way
//     included (Doubt).
//
// A lookup of a kind that is not served, or one that fails, answers nothing,
// and the object waits. A kind that is listed for the first time is waited for,
// since its objects are likely to be found in the list.
package graph
