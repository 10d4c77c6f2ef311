// Package eviction owns the decision of which running pods the node must evict: those
// that exceed their own limits of local storage, and those of a node whose memory,
// disk, inodes or processes run out (document 3, section 8).
//
// The decisions are pure: [Pressure] gets an observation at a time and returns the
// node's conditions and the resource to reclaim, [Rank] orders the pods, and
// [ExceededStorage] compares limits with usage. [Manager] measures and evicts.
package eviction
