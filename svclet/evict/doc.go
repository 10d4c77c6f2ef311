// Package evict decides which of its running pods the node must end.
//
// It is pure: it compares what pods may use with what was measured, and gives
// the first [Excess] it finds, in kubelet's words.
package evict
