// Package probe runs the probes and lifecycle hooks of this node's containers.
//
// A [Manager] is told by [Manager.Sync] which probes of a pod are to run, and
// calls back when one of them has found the same as often in a row as its
// threshold says. All probes wait in one heap; a probe has a goroutine only
// while it is under way, so that a slow one holds up no other, and no probe
// ever overlaps with itself. [Manager.Hook] runs a postStart or preStop hook.
//
// Events, messages, metrics and the details of each kind of handler are those
// of kubelet 1.36.
package probe
