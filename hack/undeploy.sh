#!/usr/bin/env bash
# Removes what `make deploy` has installed, with all data. The groups of the domain go
# first: a host cannot delete a namespace while their servers do not answer.
# usage: BIN=DIRECTORY hack/undeploy.sh MANIFESTS
set -euo pipefail

manifests=$1
: "${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"
domains=$(sed -n 's/.*--group-domain=\([a-z0-9.-]*\).*/\1/p' "$manifests" | sort -u)
for domain in $domains; do
	"$BIN/svc" unregister --force --group-domain="$domain"
done
"$BIN/svc" kubectl delete --ignore-not-found -f "$manifests"
