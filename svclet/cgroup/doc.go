// Package cgroup owns the cgroups of pods: their hierarchy and their limits.
//
// The hierarchy is kubelet's: below --cgroup-root a cgroup kubepods, which is
// limited to the node's allocatable resources; in it one cgroup for each
// Guaranteed pod and one for each of the classes Burstable and BestEffort, which
// contain the cgroups of their pods. The runtime creates containers' cgroups below
// their pod's.
//
// Limits are computed by pure functions ([PodLimits], [Allocatable], [Shares],
// [Quota]); [Manager] applies them, with either driver (cgroupfs, systemd) and
// either version of cgroups.
package cgroup
