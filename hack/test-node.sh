#!/usr/bin/env bash
# Runs the suite of the node, with real containers: $SVC names the svc to test.
# It needs root on Linux, and installs the programs that a node needs. Elsewhere it
# is skipped with a message. With $PROGRAMS it also runs programs of others, which
# it builds: that takes some twenty minutes the first time. With CONTAINERD=2, pods run
# with containerd 2, which it builds, instead of the machine's.
# usage: hack/test-node.sh [ARGUMENTS OF GO TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."
hack/node-setup.sh busybox=busybox-static
[[ -z ${PROGRAMS:-} ]] || hack/peers.sh kube-state-metrics cert-manager traefik coredns \
	csi-attacher csi-provisioner csi-resizer csi-snapshotter snapshot-controller local-path-provisioner
case ${CONTAINERD:-} in
'') ;;
2)
	hack/peers.sh containerd-2
	export PATH=$PWD/bin/containerd-2:$PATH
	;;
*)
	echo "CONTAINERD=$CONTAINERD: 2 runs the suite with containerd 2; leave it out for the machine's containerd" >&2
	exit 1
	;;
esac
exec go test -count=1 -timeout 45m ./test/node "$@"
