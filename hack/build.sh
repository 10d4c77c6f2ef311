#!/usr/bin/env bash
# Builds svc: static, stripped, and without the paths of this machine.
# usage: hack/build.sh OUTPUT [VERSION]
#
# VERSION is svc's own, without a leading v. The built-in kubectl reports the
# version of the libraries that it is made of.
set -euo pipefail
out=$(realpath -m "$1")
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

libraries=$(awk '$1 == "k8s.io/client-go" {print $2}' go.mod)
ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$libraries -X k8s.io/client-go/pkg/version.gitVersion=$libraries"
if [[ -n ${2:-} ]]; then
	ldflags+=" -X svc.dev/svc/apiserver/release.svcVersion=$2"
fi
mkdir -p "$(dirname "$out")"
exec go build -trimpath -ldflags "$ldflags" -o "$out" ./cmd/svc
