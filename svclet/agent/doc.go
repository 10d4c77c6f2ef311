// Package agent makes the node agent of its parts: which are made, in which order,
// which of them run, and who stops them.
//
// Data flows one way:
//
//	source (API | files | HTTP) -> queue -> podmanager -> podworker -> executor -> runtime, volumes, images
//	runtime events, probes ------> queue                            -> status -> API
package agent
