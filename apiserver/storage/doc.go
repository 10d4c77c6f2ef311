// Package storage keeps objects in etcd.
//
// One [Backend] holds the connection of a process to etcd; every resource type
// gets its store from it. A store reads through a watch cache that is filled
// when somebody first lists or watches the type, so that types that nobody
// uses cost nothing.
package storage
