// Package volume owns what is on this node's disk for a pod: its directory, its
// volumes and their bind mounts into containers.
//
// The layout is kubelet's, below Options.RootDir:
//
//	pods/<uid>/                                   the pod's directory
//	pods/<uid>/etc-hosts                          its hosts file
//	pods/<uid>/volumes/kubernetes.io~<type>/<name>  its volumes
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>  bind mounts of subPaths
//	pods/<uid>/plugins/kubernetes.io~empty-dir/<name>/ready  marks of volumes that are set up
//	pods/<uid>/containers/<container>/<random>    termination messages
//
// [Manager.Mount] and [Manager.Unmount] are idempotent and may be interrupted at
// any point: the next call completes them. Paths that a pod can write to are
// opened only relative to descriptors, with openat2's RESOLVE_BENEATH (Linux 5.6),
// so that neither a symlink nor a mount leads out of the volume, not even when a
// container replaces a path concurrently.
package volume
