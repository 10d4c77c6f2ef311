#!/usr/bin/env bash
# Compares svclet with the real kubelet, with real containers, and runs each with
# the other's API server. $SVC and $SVCLET name the binaries to test. It needs root
# on Linux, installs the programs that a node needs, and builds those of Kubernetes
# first (hack/peers.sh). Elsewhere it is skipped with a message.
# usage: hack/test-peers.sh [ARGUMENTS OF GO TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $(uname -s) == Linux && $(id -u) == 0 ]]; then
	hack/peers.sh
	hack/node-setup.sh busybox=busybox-static
fi
# Ginkgo ends in time to clean up.
exec go test -count=1 -timeout 17m ./test/peers -ginkgo.timeout=15m "$@"
