// Package events owns the agent's recorder of events about pods and the node: who
// they are about, and how many are written.
package events
