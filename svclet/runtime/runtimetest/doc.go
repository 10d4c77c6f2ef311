// Package runtimetest owns a fake container runtime, which runs no processes: it
// serves CRI over a unix socket, as a runtime does, and behaves as the test configures
// it.
//
//	r, err := runtimetest.Start(runtimetest.Options{Socket: socket})
//	...                                   // the agent makes a pod
//	id := r.Container(uid, "app")
//	r.End(id, runtimetest.End{Code: 1})   // its process ends
//	r.Down()                              // the runtime is unavailable
//	err = r.Up()                          // it serves again, with the same pods
//	r.Rule("StartContainer", runtimetest.Rule{Err: err, Times: 1})
//
// It is light: no goroutine per pod or container, so that hundreds of agents
// with thousands of pods fit into one process.
package runtimetest
