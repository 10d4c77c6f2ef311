#!/usr/bin/env bash
# Prints the group domains of manifests. It fails if the cluster of KUBECONFIG serves one of
# them by another Service than that of the manifests: by another fleet, whose APIServices and
# bindings the manifests would replace, and whose pods would lose their rights.
# usage: BIN=DIRECTORY hack/domains.sh MANIFESTS
set -euo pipefail

manifests=$1
: "${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"
domains=$(sed -n 's/.*--group-domain=\([a-z0-9.-]*\).*/\1/p' "$manifests" | sort -u)
for domain in $domains; do
	apiservice=v1.fleet.$domain
	own=$(awk -v line="  name: $apiservice" '
		/^---/ { found = service = 0 }
		$0 == line { found = 1 }
		/^  [a-z]/ { service = found && $1 == "service:" }
		service && $1 == "namespace:" { namespace = $2 }
		service && $1 == "name:" { name = $2 }
		END { print namespace "/" name }' "$manifests")
	serves=$("$BIN/svc" kubectl get apiservice "$apiservice" --ignore-not-found -o jsonpath='{.spec.service.namespace}/{.spec.service.name}')
	if [[ -n $serves && $serves != "$own" ]]; then
		echo "$domain is served by the Service $serves of this host (APIService $apiservice), and by $own in $manifests." \
			"A host has one fleet: undeploy that one with its own CONFIG before, or use another host (docs/aggregated.md)" >&2
		exit 1
	fi
done
echo "$domains"
