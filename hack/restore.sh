#!/usr/bin/env bash
# Replaces the data of a fleet, which config/aggregated has installed into the cluster of
# KUBECONFIG, by a snapshot that hack/backup.sh has written. The fleet is away meanwhile.
# Each member of etcd is restored in a pod with its volume, by etcd's image; in containers of
# $SHELL_IMAGE, which has a shell, this script writes the file there and replaces the data.
# Do not `make deploy` meanwhile: it would start etcd, whose members with old data can
# overwrite what is restored. If it has been done, run this again.
# It needs etcdutl, in $BIN or in PATH.
# usage: [NAMESPACE=svc-system] [BIN=bin] [SHELL_IMAGE=busybox:1.37] hack/restore.sh FILE
set -euo pipefail

file=${1:?usage: hack/restore.sh FILE}
: "${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"
namespace=${NAMESPACE:-svc-system}
PATH=$(realpath "${BIN:-bin}"):$PATH
kubectl() { svc kubectl --namespace="$namespace" "$@"; }

command -v etcdutl >/dev/null || { echo "etcdutl is not installed: it comes with etcd, or run hack/peers.sh etcdutl" >&2; exit 1; }
# The revision becomes a later one than any client of the fleet has seen, also after an earlier
# restore: that of the clock, which is ahead of a fleet that writes less than 10,000 times a second.
revision=$([[ ! -s $file ]] || etcdutl snapshot status "$file" --write-out=json | sed -n 's/.*"revision":\([0-9]*\).*/\1/p') || revision=
[[ -n $revision ]] || { echo "$file is no snapshot: hack/backup.sh writes one" >&2; exit 1; }
bump=$(($(date +%s) * 10000 - revision))
((bump > 0)) || { echo "the snapshot has the revision $revision, which is ahead of the clock of this machine: set the clock" >&2; exit 1; }
of() { kubectl get "$1" -o jsonpath="$2"; }
image=$(of statefulset/svc-etcd '{.spec.template.spec.containers[0].image}')
cluster=$(of statefulset/svc-etcd '{.spec.template.spec.containers[0].args[0]}')
[[ $cluster == --initial-cluster=* ]] || { echo "statefulset/svc-etcd: its first argument is not --initial-cluster" >&2; exit 1; }
IFS=, read -ra members <<<"$cluster"
for i in "${!members[@]}"; do
	kubectl get persistentvolumeclaim "data-svc-etcd-$i" -o name
done
# That of the StatefulSet: a member that loses its volume computes its ID with it, and must find
# that this ID is a member already.
token=svc-etcd
# After an attempt that has failed they may have no pods: the manifests give them two.
etcds=$(of statefulset/svc-etcd '{.spec.replicas}')
servers=$(of deployment/svc-apiserver '{.spec.replicas}')
managers=$(of deployment/svc-controller-manager '{.spec.replicas}')
((servers)) || servers=2
((managers)) || managers=2

back() {
	kubectl scale --replicas="${#members[@]}" statefulset/svc-etcd &&
		kubectl scale --replicas="$servers" deployment/svc-apiserver &&
		kubectl scale --replicas="$managers" deployment/svc-controller-manager
}
# The number of members whose data may have been replaced. A member is counted before this
# script replaces its data; its pod alone never does.
replaced=0
again="run this again, also if make deploy has started etcd meanwhile. Do not make deploy before: members with old data can overwrite what is restored"
failed() {
	trap '' INT TERM HUP # another Ctrl-C does not end this before it says whether the fleet starts
	if ((replaced)); then
		echo "the data of $replaced of ${#members[@]} members of etcd has been replaced, or may have been, so the fleet stays away: $again" >&2
	elif ((!etcds)); then
		echo "the fleet was away before, and an earlier attempt may have replaced data, so it stays away: $again" >&2
	elif kubectl delete pod svc-etcd-restore-0 --ignore-not-found --timeout=2m && back; then
		echo "no data has been replaced: the fleet starts again" >&2
	else
		echo "no data has been replaced, but the fleet is not started: the host does not answer, or pod svc-etcd-restore-0 does not end and may keep a volume of etcd." \
			"Run this again; or, to go on with the old data, delete the pod, and scale statefulset/svc-etcd to ${#members[@]}," \
			"deployment/svc-apiserver to $servers and deployment/svc-controller-manager to $managers" >&2
	fi
}
trap failed EXIT
kubectl scale --replicas=0 deployment/svc-controller-manager deployment/svc-apiserver statefulset/svc-etcd
kubectl wait pod --for=delete --timeout=5m -l 'app.kubernetes.io/name in (svc-etcd, svc-apiserver)'

# restore restores one member: beside its data first, which it replaces then. Clients have seen
# earlier revisions only, and read everything again.
restore() {
	local pod=svc-etcd-restore-$1 security='{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}'
	local mounts='[{name: data, mountPath: /var/lib/etcd}, {name: snapshot, mountPath: /snapshot}]'
	kubectl delete pod "$pod" --ignore-not-found
	kubectl create -f - <<-POD
		apiVersion: v1
		kind: Pod
		metadata: {name: $pod}
		spec:
		  restartPolicy: Never
		  automountServiceAccountToken: false
		  enableServiceLinks: false
		  terminationGracePeriodSeconds: 1
		  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
		  initContainers:
		  - name: upload
		    image: ${SHELL_IMAGE:-busybox:1.37}
		    command: [sh, -c, 'rm -rf /var/lib/etcd/restored; until [ -e /snapshot/complete.db ]; do sleep 1; done']
		    securityContext: $security
		    volumeMounts: $mounts
		  - name: restore
		    image: $image
		    command: [/usr/local/bin/etcdutl]
		    args:
		    - snapshot
		    - restore
		    - /snapshot/complete.db
		    - --data-dir=/var/lib/etcd/restored
		    - --name=svc-etcd-$1
		    - $cluster
		    - --initial-cluster-token=$token
		    - --initial-advertise-peer-urls=https://svc-etcd-$1.svc-etcd.\$(NAMESPACE).svc:2380
		    - --bump-revision=$bump
		    - --mark-compacted
		    env:
		    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
		    securityContext: $security
		    volumeMounts: $mounts
		  containers:
		  - name: replace
		    image: ${SHELL_IMAGE:-busybox:1.37}
		    command: [sh, -c, 'sleep 3600']
		    securityContext: $security
		    volumeMounts: $mounts
		  volumes:
		  - {name: data, persistentVolumeClaim: {claimName: data-svc-etcd-$1}}
		  - {name: snapshot, emptyDir: {}}
	POD
	kubectl wait "pod/$pod" --for='jsonpath={.status.initContainerStatuses[0].state.running}' --timeout=5m
	kubectl exec -i "$pod" -c upload -- sh -c 'cat >/snapshot/part && mv /snapshot/part /snapshot/complete.db' <"$file"
	local phase=Pending
	while [[ $phase == Pending ]]; do
		sleep 1
		phase=$(of "pod/$pod" '{.status.phase}')
	done
	if [[ $phase != Running ]]; then
		kubectl logs "$pod" -c restore >&2 || true
		echo "pod $pod has not restored its volume" >&2
		return 1
	fi
	((++replaced))
	kubectl exec "$pod" -c replace -- sh -c 'rm -rf /var/lib/etcd/data && mv /var/lib/etcd/restored /var/lib/etcd/data'
	kubectl delete pod "$pod"
}
for i in "${!members[@]}"; do
	restore "$i"
done
trap - EXIT
back
kubectl rollout status --timeout=5m statefulset/svc-etcd
kubectl rollout status --timeout=5m deployment/svc-apiserver
