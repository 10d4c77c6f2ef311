// Package executor owns the operations that pods' state machines ask for: it
// carries them out on the container runtime, cgroups, volumes, images and logs.
//
// Its methods block until the operation has ended or its context is done. They
// may be called for several pods, and for one pod with operations of different
// keys, at the same time.
package executor
