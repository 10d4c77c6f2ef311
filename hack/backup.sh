#!/usr/bin/env bash
# Writes a snapshot of the etcd of a fleet, which config/aggregated has installed into the
# cluster of KUBECONFIG, to a file. It needs etcdctl, in $BIN or in PATH.
# usage: [NAMESPACE=svc-system] [BIN=bin] [MEMBER=svc-etcd-0] hack/backup.sh FILE
set -euo pipefail

file=${1:?usage: hack/backup.sh FILE}
: "${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"
namespace=${NAMESPACE:-svc-system}
member=${MEMBER:-svc-etcd-0}
PATH=$(realpath "${BIN:-bin}"):$PATH
command -v etcdctl >/dev/null || { echo "etcdctl is not installed: it comes with etcd, or run hack/peers.sh etcdctl" >&2; exit 1; }
kubectl() { svc kubectl --namespace="$namespace" "$@"; }

work=$(mktemp -d)
forward=
trap '[[ -z $forward ]] || kill "$forward"; rm -rf "$work"' EXIT
# What etcd mounts: another Secret may be left from before the component cert-manager, with
# which it mounts several.
secret=$(kubectl get statefulset svc-etcd -o jsonpath='{.spec.template.spec.volumes[?(@.name=="pki")].secret.secretName}') ||
	{ echo "the fleet has no etcd of its own in the namespace $namespace: back up yours by its own tools" >&2; exit 1; }
certificate=client.crt private=client.key
[[ -n $secret ]] || secret=svc-etcd-client certificate=tls.crt private=tls.key
# key KEY prints what the Secret has.
key() { kubectl get secret "$secret" -o go-template="{{index .data \"$1\" | base64decode}}"; }
key ca.crt >"$work/ca.crt"
key $certificate >"$work/client.crt"
key $private >"$work/client.key"
svc kubectl --namespace="$namespace" port-forward "$member" :2379 >"$work/forward" &
forward=$!
until grep -q '^Forwarding from' "$work/forward"; do
	kill -0 "$forward" 2>/dev/null || { echo "kubectl port-forward $member has ended" >&2; exit 1; }
	sleep 0.1
done
port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$work/forward" | head -n 1)
etcd() { etcdctl --endpoints="https://localhost:$port" --cacert="$work/ca.crt" --cert="$work/client.crt" --key="$work/client.key" "$@"; }
# A snapshot is of what one member has. A member that the others do not reach has old data.
etcd endpoint health >/dev/null ||
	{ echo "$member does not reach the other members of etcd, and may have old data: name another one (MEMBER=svc-etcd-1)" >&2; exit 1; }
etcd snapshot save "$file"
