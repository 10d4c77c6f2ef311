#!/usr/bin/env bash
# Runs svclet beside the real kubelet, and each of them with the other's API
# server, with real containers: $SVC and $SVCLET name what is tested. It needs
# root on Linux, installs what a node takes, and builds the programs of
# Kubernetes first (hack/peers.sh); elsewhere it is skipped, and says why.
# usage: hack/test-peers.sh [ARGUMENTS OF GO TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $(uname -s) == Linux && $(id -u) == 0 ]]; then
	hack/peers.sh
	hack/node-setup.sh busybox=busybox-static
fi
# Ginkgo ends in time to clean up.
exec go test -count=1 -timeout 17m ./test/peers -ginkgo.timeout=15m "$@"
