#!/usr/bin/env bash
# Replaces the data of a fleet, which config/aggregated has installed into the cluster of the
# present kubeconfig, by a snapshot that hack/backup.sh has written. The fleet is away
# meanwhile. Each member of etcd is restored in a pod with its volume, by etcd's image;
# containers of $SHELL_IMAGE, which has a shell, write the file there and replace the data.
# usage: [NAMESPACE=svc-system] [BIN=bin] [SHELL_IMAGE=busybox:1.37] hack/restore.sh FILE
set -euo pipefail

file=${1:?usage: hack/restore.sh FILE}
namespace=${NAMESPACE:-svc-system}
PATH=$(realpath "${BIN:-bin}"):$PATH
kubectl() { svc kubectl --namespace="$namespace" "$@"; }

[[ -s $file ]] || { echo "$file is no snapshot: hack/backup.sh writes one" >&2; exit 1; }
of() { kubectl get "$1" -o jsonpath="$2"; }
image=$(of statefulset/svc-etcd '{.spec.template.spec.containers[0].image}')
cluster=$(of statefulset/svc-etcd '{.spec.template.spec.containers[0].args[0]}')
[[ $cluster == --initial-cluster=* ]] || { echo "statefulset/svc-etcd: its first argument is not --initial-cluster" >&2; exit 1; }
IFS=, read -ra members <<<"$cluster"
for i in "${!members[@]}"; do
	kubectl get persistentvolumeclaim "data-svc-etcd-$i" -o name
done
# After an attempt that has failed they have no pods: the manifests give them two.
servers=$(of deployment/svc-apiserver '{.spec.replicas}')
managers=$(of deployment/svc-controller-manager '{.spec.replicas}')

back() {
	kubectl scale --replicas="${#members[@]}" statefulset/svc-etcd
	kubectl scale --replicas=$((servers ? servers : 2)) deployment/svc-apiserver
	kubectl scale --replicas=$((managers ? managers : 2)) deployment/svc-controller-manager
}
restored=0
failed() {
	if ((restored)); then
		echo "$restored of ${#members[@]} members of etcd have the snapshot's data, so the fleet stays away: run this again" >&2
	else
		back
	fi
}
trap failed EXIT
kubectl scale --replicas=0 deployment/svc-controller-manager deployment/svc-apiserver statefulset/svc-etcd
kubectl wait pod --for=delete --timeout=5m -l 'app.kubernetes.io/name in (svc-etcd, svc-apiserver)'

# restore restores one member. Its revision becomes a later one than clients have seen, so
# that they read everything again.
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
		    - --initial-cluster-token=svc-etcd
		    - --initial-advertise-peer-urls=https://svc-etcd-$1.svc-etcd.\$(NAMESPACE).svc:2380
		    - --bump-revision=1000000000
		    - --mark-compacted
		    env:
		    - {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
		    securityContext: $security
		    volumeMounts: $mounts
		  containers:
		  - name: replace
		    image: ${SHELL_IMAGE:-busybox:1.37}
		    command: [sh, -c, 'rm -rf /var/lib/etcd/data && mv /var/lib/etcd/restored /var/lib/etcd/data']
		    securityContext: $security
		    volumeMounts: $mounts
		  volumes:
		  - {name: data, persistentVolumeClaim: {claimName: data-svc-etcd-$1}}
		  - {name: snapshot, emptyDir: {}}
	POD
	kubectl wait "pod/$pod" --for='jsonpath={.status.initContainerStatuses[0].state.running}' --timeout=5m
	kubectl exec -i "$pod" -c upload -- sh -c 'cat >/snapshot/part && mv /snapshot/part /snapshot/complete.db' <"$file"
	local phase=
	until [[ $phase == Succeeded || $phase == Failed ]]; do
		sleep 1
		phase=$(of "pod/$pod" '{.status.phase}')
	done
	if [[ $phase == Failed ]]; then
		kubectl logs "$pod" -c restore >&2 || true
		echo "pod $pod has not restored its volume" >&2
		return 1
	fi
	kubectl delete pod "$pod"
}
for i in "${!members[@]}"; do
	restore "$i"
	((++restored))
done
trap - EXIT
back
kubectl rollout status --timeout=5m statefulset/svc-etcd
kubectl rollout status --timeout=5m deployment/svc-apiserver
