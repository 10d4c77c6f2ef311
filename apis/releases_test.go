package apis

import (
	"slices"
	"testing"

	"svc.dev/svc/internal/releases"
)

// leftOut are the kinds and versions of Kubernetes' releases that svc does not have, which
// docs/releases.md names. Their versions are alpha.
var leftOut = []string{
	"auditregistration.k8s.io/v1alpha1 AuditSink",
	"certificates.k8s.io/v1alpha1 PodCertificateRequest",
	"coordination.k8s.io/v1alpha1 LeaseCandidate",
	"networking.k8s.io/v1alpha1 ClusterCIDR",
	"resource.k8s.io/v1alpha1 PodScheduling",
	"resource.k8s.io/v1alpha1 ResourceClaim",
	"resource.k8s.io/v1alpha1 ResourceClaimTemplate",
	"resource.k8s.io/v1alpha1 ResourceClass",
	"resource.k8s.io/v1alpha2 PodSchedulingContext",
	"resource.k8s.io/v1alpha2 ResourceClaim",
	"resource.k8s.io/v1alpha2 ResourceClaimParameters",
	"resource.k8s.io/v1alpha2 ResourceClaimTemplate",
	"resource.k8s.io/v1alpha2 ResourceClass",
	"resource.k8s.io/v1alpha2 ResourceClassParameters",
	"resource.k8s.io/v1alpha2 ResourceSlice",
	"resource.k8s.io/v1alpha3 DeviceClass",
	"resource.k8s.io/v1alpha3 PodSchedulingContext",
	"resource.k8s.io/v1alpha3 ResourceClaim",
	"resource.k8s.io/v1alpha3 ResourceClaimTemplate",
	"resource.k8s.io/v1alpha3 ResourceSlice",
	"scheduling.k8s.io/v1alpha1 Workload",
	"scheduling.k8s.io/v1alpha2 PodGroup",
	"scheduling.k8s.io/v1alpha2 Workload",
	"settings.k8s.io/v1alpha1 PodPreset",
	"storagemigration.k8s.io/v1alpha1 StorageVersionMigration",
}

// elsewhere are what other packages serve, and the bodies of subresources.
var elsewhere = []string{
	"apiextensions.k8s.io/v1 CustomResourceDefinition", "apiextensions.k8s.io/v1beta1 CustomResourceDefinition",
	"apiregistration.k8s.io/v1 APIService", "apiregistration.k8s.io/v1beta1 APIService",
	"v1 EphemeralContainers", "autoscaling/v1 Scale", "policy/v1 Eviction", "policy/v1beta1 Eviction", "authentication.k8s.io/v1 TokenRequest",
}

func TestWhichKindsOfReleasesAreLeftOut(t *testing.T) {
	table, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, k := range Kinds() {
		for _, gvk := range k.GVKs() {
			declared = append(declared, gvk.GroupVersion().String()+" "+gvk.Kind)
		}
	}
	var missing []string
	for i := range table.Kinds {
		k := &table.Kinds[i]
		name := k.GroupVersion().String() + " " + k.Kind
		if k.Served.Last < releases.Oldest || slices.Contains(declared, name) || slices.Contains(elsewhere, name) {
			continue
		}
		missing = append(missing, name)
		if k.Stability() != "alpha" {
			t.Errorf("%s is not alpha", name)
		}
	}
	slices.Sort(missing)
	if !slices.Equal(missing, leftOut) {
		t.Errorf("left out are\n%q, want\n%q", missing, leftOut)
	}
}
