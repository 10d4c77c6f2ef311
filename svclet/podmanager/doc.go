// Package podmanager owns the table of the node's pods: which pods have a worker,
// in which order they are admitted, and which wait for a predecessor to end.
//
// One event loop, [Manager.Run], changes the table. Sources, the container
// runtime, probes, API objects and workers reach it through a [Queue], whose
// methods never block. The loop itself does no I/O. Queries read the table at any
// time, even before and after Run.
package podmanager
