// Package flexvolume owns the volumes of FlexVolume drivers: programs in a directory of the
// node (--volume-plugin-dir) that are run with a command and answer in JSON.
//
// The protocol is that of kubelet, as
// https://github.com/kubernetes/community/blob/master/contributors/devel/sig-storage/flexvolume.md
// documents it. Drivers that attach devices are called on the node, also if a controller
// attaches the volumes of CSI drivers.
package flexvolume
