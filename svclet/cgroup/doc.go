// Package cgroup bounds what pods use, together and one by one.
//
// It keeps the tree of cgroups that kubelet keeps: under the root of
// --cgroup-root a cgroup kubepods, which holds the node's allocatable
// resources; in it one for each pod of the class Guaranteed and one each for
// the classes Burstable and BestEffort; in these the cgroups of their pods.
// Containers are the runtime's, below their pod's.
//
// What a cgroup is to hold is computed by pure functions ([PodLimits],
// [Allocatable], [Shares], [Quota]); [Manager] writes it, by either driver
// (cgroupfs, systemd) and in either version of cgroups.
package cgroup
