// Package image makes sure that the images of pods are on this node.
//
// [Manager.Ensure] does what a container's pull policy says: it looks whether
// the image is there, finds the credentials to pull it with (package
// credentials), and pulls it, within the bounds of how many images may be
// pulled at once and how often. Those who want the same image with the same
// credentials share one pull, which ends when nobody waits for it any more.
// How long to wait after a pull that failed is decided elsewhere, by the pod's
// machine. [Manager.List] tells the node's status what is there.
//
// Messages, events and metrics are those of kubelet 1.36.
package image
