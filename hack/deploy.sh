#!/usr/bin/env bash
# Installs manifests into the cluster of KUBECONFIG, which must have no other fleet.
# usage: BIN=DIRECTORY hack/deploy.sh MANIFESTS
set -euo pipefail

manifests=$1
: "${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"
"$(dirname "$0")/domains.sh" "$manifests" >/dev/null
"$BIN/svc" kubectl apply --server-side --force-conflicts -f "$manifests"
