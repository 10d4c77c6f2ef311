package openapi

import "testing"

func TestTheDigestIsThatOfThePackages(t *testing.T) {
	const pod, node, deployment = "io.k8s.api.core.v1.Pod", "io.k8s.api.core.v1.Node", "io.k8s.api.apps.v1.Deployment"
	if Digest(pod, deployment, node) != Digest(deployment, pod) {
		t.Error("the order and the number of a package's models matter")
	}
	if Digest(pod) == Digest(deployment) {
		t.Error("two packages have the same digest")
	}
}

func TestEveryPackageHasADigest(t *testing.T) {
	for name := range makers() {
		if packageDigests[PackageOf(name)] == "" {
			t.Errorf("no digest of the package of %s: run make generate", name)
		}
	}
}
