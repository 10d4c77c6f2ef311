// Package container writes what the runtime is told of a pod: the
// configuration of its sandbox ([Sandbox]) and of each of its containers
// ([Config]), from the pod's spec.
//
// It decides and does not act: the ConfigMaps, Secrets and Services that a
// spec names are asked of [Objects], paths on the host are handed to it, and
// files (the hosts file, whose content [HostsFile] gives, the termination
// message, the directory of logs) are made by the caller. The only file that it
// reads itself is the node's resolv.conf.
//
// What it writes is what kubelet of release 1.36 writes, its generally
// available and its default features included; where the two differ, the
// function says so.
package container
