#!/usr/bin/env bash
# Runs a fleet behind a host. $HOST is what the host is: empty for svc itself;
# kube-apiserver for the real one, that in $KUBEBUILDER_ASSETS if it is set; pods for the fleet in pods of the real Kubernetes, which
# needs root on Linux, and installs the programs that a node needs. With pods,
# $PREVIOUS may be an older source tree, from whose manifests and image the fleet is upgraded,
# and with $PROGRAMS cert-manager, which it builds in some ten minutes, makes the certificates of a fleet.
# usage: HOST= BIN=DIRECTORY hack/test-aggregated.sh [ARGUMENTS OF GO TEST...]
set -euo pipefail
cd "$(dirname "$0")/.."

package=./test/aggregated timeout=20
case ${HOST:-} in
"") ;;
kube-apiserver)
	hack/peers.sh
	hack/peers.sh helm
	;;
pods)
	package=./test/aggregated/deployed timeout=40
	hack/peers.sh
	hack/peers.sh etcdctl etcdutl
	[[ -z ${PROGRAMS:-} ]] || hack/peers.sh cert-manager cainjector
	hack/node-setup.sh busybox=busybox-static
	export PLATFORMS=linux/$(go env GOARCH)
	IMAGE=svc:dev hack/image.sh
	[[ -z ${PREVIOUS:-} ]] || IMAGE=svc:previous "$PREVIOUS/hack/image.sh"
	;;
*)
	echo "HOST=$HOST: choose kube-apiserver or pods, or leave it out for svc" >&2
	exit 1
	;;
esac
SVC=$BIN/svc SVCLET=$BIN/svclet HOST=${HOST:-} \
	exec go test -count=1 -timeout "${timeout}m" "$package" "$@"
