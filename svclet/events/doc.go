// Package events owns the agent's recorder of events about pods and the node: the
// objects that they are about, and the limits on how many are written.
package events
