// Package load owns the import of images from tar archives into containerd, so
// that pods can use them without a registry. It reads OCI image layouts
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) and the
// archives of `docker save`, both optionally compressed with gzip.
//
// It uses containerd's own services, since CRI has no import, and has the same
// result as a pull through CRI: content with garbage collection references to what
// it needs, and images that CRI knows at once. docs/decisions/image-import.md says
// why it does not use containerd's client.
package load
