#!/usr/bin/env bash
# Builds the container image with whichever of docker and podman is present.
# usage: hack/image.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."

for engine in docker podman; do
	if "$engine" info >/dev/null 2>&1; then
		exec "$engine" build --build-arg VERSION="${1/#dev/}" --tag "${IMAGE:-svc:$1}" .
	fi
done
echo "make image needs docker or podman, and its service running: neither answers here" >&2
exit 1
