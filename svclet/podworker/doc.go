// Package podworker drives the state machine of one pod: a [Worker] passes the
// machine what has happened, starts the operations that it asks for, and reports
// its output.
//
// A worker owns all state of its pod. Other packages change that state only by
// the worker's methods, which never block.
package podworker
