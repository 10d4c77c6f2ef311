// Package load owns the command "image": it lists, pulls and removes the images of
// this machine's node, by CRI, and imports images from tar archives, so that pods can
// use them without a registry. The import reads OCI image layouts
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) and the
// archives of `docker save`, both optionally compressed with gzip.
//
// The import uses containerd's own services, since CRI has no import, and has the same
// result as a pull through CRI: unpacked layers, content with garbage collection
// references to what it needs, and images that CRI knows at once. docs/decisions/image-import.md says
// why it does not use containerd's client.
package load
