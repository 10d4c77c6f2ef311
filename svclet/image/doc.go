// Package image owns the images on this node: pulls, and the list of images for
// the node's status.
//
// [Manager.Ensure] applies a container's pull policy: it checks whether the image
// exists, finds the credentials (package credentials), and pulls the image, within
// the limits of parallel pulls and their rate. Concurrent pulls of one image with
// the same credentials are shared, and cancelled when no caller waits any more.
// The back-off after a failed pull is the pod state machine's. [Manager.List]
// lists images.
//
// Messages, events and metrics are those of kubelet 1.36.
package image
