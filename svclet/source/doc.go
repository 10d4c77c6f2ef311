// Package source knows which pods this node is to run: those that the API
// server has bound to it, those of files on this machine, and those that a URL
// names.
//
// [Sources] merges them, and tells what has changed in one stream of [Update]s.
// It is the only place where the agent keeps pods. What is kept is shared and
// must not be changed.
//
// Pods of files and of the URL are static: the API server has only a mirror of
// each, which [Sources] creates, replaces and deletes, and which is never among
// the updates.
package source
