// Package admit decides whether this node takes a pod.
//
// It is pure. [Admit] goes through a list of named checks and gives the first
// one's [Refusal], in kubelet's words; what is refused stays on the node's
// list as a pod that has failed. [Victims] says which pods make room for a
// critical one.
package admit
