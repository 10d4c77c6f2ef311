// Package source owns the desired pods of this node: those that the API server has
// bound to it, and the static pods of files and of a URL.
//
// [Sources] merges them, and sends changes in one stream of [Update]s. It is the
// only place where the agent keeps pods. They are shared and must not be modified.
//
// The API server has a mirror pod for each static pod, which [Sources] creates,
// replaces and deletes, and which is never in an update.
package source
