#!/usr/bin/env bash
# Removes what `make deploy` has installed, with all data. The groups of the domain go
# first: a host cannot delete a namespace while their servers do not answer.
# usage: BIN=DIRECTORY hack/undeploy.sh MANIFESTS
set -euo pipefail

manifests=$1
: "${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"
domains=$("$(dirname "$0")/domains.sh" "$manifests")
for domain in $domains; do
	"$BIN/svc" unregister --force --group-domain="$domain"
done
"$BIN/svc" kubectl delete --ignore-not-found -f "$manifests"
