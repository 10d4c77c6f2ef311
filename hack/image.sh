#!/usr/bin/env bash
# Builds the container image for each of $PLATFORMS, without a container engine:
# dist/svc.tar is an archive for `ctr images import`, `docker load`, `podman load` or
# `svc image import`, and dist/svc-*.cdx.json are the modules that are in it. The same
# commit gives the same bytes.
# usage: hack/image.sh [VERSION]
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-}
binaries=()
for platform in ${PLATFORMS:-linux/amd64 linux/arm64}; do
	binary=dist/${platform/\//-}/svc
	GOFLAGS="${GOFLAGS:-} -trimpath" GOOS=${platform%/*} GOARCH=${platform#*/} hack/build.sh "$binary" "$version"
	binaries+=("$platform=$PWD/$binary")
done
mkdir -p bin
go -C hack/tools/image build -o "$PWD/bin/image" .
bin/image -name "${IMAGE:-svc:${version:-dev}}" -version "$version" -output dist "${binaries[@]}"
