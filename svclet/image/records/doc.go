// Package records owns the files in which the node keeps who may use the images that it
// has pulled (KEP-2535): pods whose credentials pulled an image use it without another
// pull, others have to prove to the registry that they may.
//
// The files have kubelet's names, kinds and directory, image_manager below --root-dir: an
// ImagePullIntent while an image is pulled, and an ImagePulledRecord afterwards.
package records
