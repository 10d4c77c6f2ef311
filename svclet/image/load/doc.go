// Package load imports images from tar archives into containerd, so that pods
// can use them without a registry. It reads OCI image layouts
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md) and
// the archives of `docker save`, both also compressed with gzip.
//
// It speaks to containerd's own services, since CRI has none for this, and
// leaves what a pull through CRI would: content that refers to what it needs,
// and images that CRI knows at once.
package load
