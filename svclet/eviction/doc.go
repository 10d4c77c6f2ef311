// Package eviction owns the decision of which running pods the node must evict.
//
// Today that is eviction by local ephemeral-storage limits; eviction under node
// pressure (memory, disk, inodes, PIDs) belongs here too. The decision is pure:
// [ExceededStorage] compares limits with measured usage and returns the first
// [Violation] it finds, with the signal and the message that kubelet reports.
// [Manager] measures usage and evicts pods.
package eviction
