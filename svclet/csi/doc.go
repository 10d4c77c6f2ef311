// Package csi owns the node's part of the Container Storage Interface: which drivers are
// registered, the node's CSINode, and the calls that stage, publish, expand, measure and
// release volumes.
//
// What a driver may have mounted is recorded in files, before each call. So nothing
// depends on the memory of the agent: after a crash at any point, or a restart of the
// agent, of a driver or of the machine, the next call completes or undoes what was begun.
// The paths are kubelet's, below Options.RootDir:
//
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/vol_data.json   the record of a pod's volume
//	pods/<uid>/volumes/kubernetes.io~csi/<volume>/mount           the volume, published
//	plugins/kubernetes.io/csi/<driver>/<hash>/vol_data.json       the record of a staged volume
//	plugins/kubernetes.io/csi/<driver>/<hash>/globalmount         the volume, staged
//	plugins/kubernetes.io/csi/volumeDevices/publish/<volume>/<uid>  a block device, published
package csi
