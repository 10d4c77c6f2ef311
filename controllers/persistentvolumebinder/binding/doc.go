// Package binding decides which persistent volume a claim is bound to, whether one
// has to be provisioned, and what becomes of a volume whose claim was deleted, as
// Kubernetes' persistentvolume-binder does. It has no client and no clock; the
// scripts in testdata show its decisions.
//
// A binding has four writes: the volume's claim reference, the volume's phase, the
// claim's volume name with the annotation bind-completed, and the claim's phase. Any
// of them may be missing after a crash: every sync repeats those that are.
package binding
