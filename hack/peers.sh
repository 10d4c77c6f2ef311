#!/usr/bin/env bash
# Builds the real kube-apiserver, kube-controller-manager, kube-scheduler,
# kubelet and etcd, or what is named (a component of Kubernetes; kube-apiserver-1.28,
# kubectl-1.28 and kubectl-1.20, which are of older releases, and kube-scheduler-1.37; etcdctl and etcdutl; helm;
# conformance.test, which is Kubernetes' conformance tests, and agnhost, nonewprivs, sample-apiserver and ginkgo,
# which they need; kube-state-metrics, cert-manager, which is its controller, cainjector, which is cert-manager's
# too, traefik and coredns; the sidecars of CSI drivers: csi-attacher, csi-provisioner, csi-resizer and csi-snapshotter,
# and snapshot-controller; local-path-provisioner; containerd-2, which is containerd 2 and its runc, for which it
# needs a C compiler and installs libseccomp's headers), into bin/, for the benchmark and the tests that compare with them. Does nothing when they are
# current.
# The first build takes about five minutes on two cores; GOFLAGS=-p=1 leaves room for
# other work.
#
# The binaries are stripped and carry their version, as the published ones do.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

kubernetes=v1.36.3

# build MODULE NAME PACKAGE [LDFLAGS [COMMAND]] builds a main package of the module
# hack/tools/MODULE, unless bin/NAME was built from the same inputs. With the COMMAND
# "test -c", it is the program of a package's tests.
build() {
	local module=$1 name=$2 package=$3 ldflags="-s -w ${4:-}" command=${5:-build}
	local stamp=bin/.${name//\//-}.stamp inputs
	inputs=$(go version; echo "$package $ldflags"; cat "hack/tools/$module/go.mod" "hack/tools/$module/go.sum")
	inputs=$(sha256sum <<<"$inputs")
	if [[ -x bin/$name && -f $stamp && $(<"$stamp") == "$inputs" ]]; then
		return
	fi
	echo "building $name, which takes a few minutes the first time" >&2
	go -C "hack/tools/$module" $command -trimpath -ldflags "$ldflags" -o "$PWD/bin/$name" "$package"
	echo "$inputs" >"$stamp"
}

mkdir -p bin
# version VERSION prints the flags by which the published binaries have their version. Without
# gitMajor and gitMinor, kube-apiserver takes every version that has a deprecation for deprecated.
version() {
	local package minor=${1#v1.}
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- "-X $package.%s " "gitVersion=$1" gitMajor=1 "gitMinor=${minor%.*}"
	done
}
components=("$@")
if ((! $#)); then
	components=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet)
fi
for name in "${components[@]}"; do
	case $name in
	kube-apiserver-1.28) build kubernetes-1.28 "$name" k8s.io/kubernetes/cmd/kube-apiserver "$(version v1.28.15)" ;;
	kube-scheduler-1.37) build kubernetes-1.37 "$name" k8s.io/kubernetes/cmd/kube-scheduler "$(version v1.37.2)" ;;
	kubectl-1.20) build "$name" "$name" . "$(version v1.20.15)" ;;
	kubectl-1.28) build "$name" "$name" . "$(version v1.28.15)" ;;
	helm) build helm helm helm.sh/helm/v3/cmd/helm ;;
	kube-state-metrics) build "$name" "$name" k8s.io/kube-state-metrics/v2 ;;
	cert-manager) build "$name" "$name" github.com/cert-manager/cert-manager/cmd/controller ;;
	cainjector) build cert-manager "$name" github.com/cert-manager/cert-manager/cmd/cainjector ;;
	conformance.test) build conformance "$name" . "$(version $kubernetes)" "test -c" ;;
	agnhost | nonewprivs) build conformance "$name" "k8s.io/kubernetes/test/images/$name" ;;
	sample-apiserver) build conformance "$name" k8s.io/sample-apiserver ;;
	csi-attacher) build csi "$name" github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher ;;
	csi-provisioner) build csi "$name" github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner ;;
	csi-resizer) build csi "$name" github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer ;;
	csi-snapshotter | snapshot-controller) build csi "$name" "github.com/kubernetes-csi/external-snapshotter/v8/cmd/$name" ;;
	local-path-provisioner) build csi "$name" github.com/rancher/local-path-provisioner ;;
	containerd-2)
		hack/node-setup.sh pkg-config=pkg-config libseccomp.pc=libseccomp-dev
		for program in containerd containerd-shim-runc-v2; do
			build containerd "containerd-2/$program" "github.com/containerd/containerd/v2/cmd/$program"
		done
		CGO_ENABLED=1 build containerd containerd-2/runc github.com/opencontainers/runc "" "build -tags=seccomp"
		;;
	ginkgo) build conformance "$name" github.com/onsi/ginkgo/v2/ginkgo ;;
	coredns) build "$name" "$name" . ;;
	traefik) build "$name" "$name" github.com/traefik/traefik/v2/cmd/traefik ;;
	etcd) build etcd etcd go.etcd.io/etcd/server/v3 ;;
	etcd*) build etcdtools "$name" "go.etcd.io/etcd/$name/v3" ;;
	*) build kubernetes "$name" "k8s.io/kubernetes/cmd/$name" "$(version $kubernetes)" ;;
	esac
done
