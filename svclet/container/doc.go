// Package container owns the translation of a pod's spec to CRI: the configuration
// of its sandbox ([Sandbox]) and of each of its containers ([Config]).
//
// It computes and does no I/O, except that it reads the node's resolv.conf: it
// gets ConfigMaps, Secrets and Services from [Objects], host paths are passed in,
// and the caller creates the files (the hosts file with the content of
// [HostsFile], the termination message file, the log directory).
//
// The result is that of kubelet 1.36, with its default features; functions
// document where they differ.
package container
