#!/usr/bin/env bash
# Builds the command (svc or svclet) that the output is named after: static and
# stripped.
# usage: hack/build.sh OUTPUT [VERSION]
#
# VERSION is svc's own, without a leading v. The built-in kubectl reports the
# release that its libraries belong to: v0.37.2 of a library is of v1.37.2.
#
# With the tag fieldsv1string, equal managed fields of objects are in memory once
# (docs/decisions/managed-fields.md). With grpcnotrace, the linker leaves out what the
# agent never calls (docs/decisions/unreachable-methods.md).
set -euo pipefail
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

libraries=$(awk '$1 == "k8s.io/client-go" {sub(/^v0/, "v1", $2); print $2}' go.mod)
ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$libraries -X k8s.io/client-go/pkg/version.gitVersion=$libraries"
if [[ -n ${2:-} ]]; then
	ldflags+=" -X svc.dev/svc/apiserver/release.svcVersion=$2"
fi
mkdir -p "$(dirname "$out")"
exec go build -trimpath -tags fieldsv1string,grpcnotrace -ldflags "$ldflags" -o "$out" "./cmd/$(basename "$out")"
