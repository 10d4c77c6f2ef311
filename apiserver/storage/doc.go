// Package storage owns the connection to etcd and the stores of all resource
// types in it.
//
// A [Backend] is the process's connection to etcd; every resource type gets its
// store from it. A store reads through a watch cache that is filled by the first
// list or watch of the type, so that types without readers cost nothing.
package storage
