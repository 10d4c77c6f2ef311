// Package volume owns what lies on this node's disk for a pod: its directory,
// its volumes and what is bind-mounted of them into containers.
//
// The layout is kubelet's, below Options.RootDir:
//
//	pods/<uid>/                                   the pod's directory
//	pods/<uid>/etc-hosts                          its hosts file
//	pods/<uid>/volumes/kubernetes.io~<type>/<name>  its volumes
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>  bind mounts of subPaths
//	pods/<uid>/plugins/kubernetes.io~empty-dir/<name>/ready  marks of what has been set up
//	pods/<uid>/containers/<container>/<random>    termination messages
//
// [Manager.Mount] and [Manager.Unmount] may be killed at any line: what they
// find half done they complete. Whatever a pod can write to is reached only by
// descriptors that neither symlink nor mount leads out of its volume, so that
// a container that swaps one for the other gains nothing. That takes openat2
// of Linux 5.6.
package volume
