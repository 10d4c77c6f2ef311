// Package probe owns the probes and lifecycle hooks of this node's containers.
//
// [Manager.Sync] sets the probes of a pod, and the manager reports each result
// that reaches its threshold. Waiting probes are in one heap; a probe has a
// goroutine only while it is in flight, so a slow probe delays no other, and runs
// of one probe never overlap. [Manager.Hook] runs a postStart or preStop hook.
//
// Events, messages, metrics and the details of handlers are those of kubelet 1.36.
package probe
