package release

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

// Served reports which API versions are served: those of the release that are on by
// default, as changed by --runtime-config. A version that no release has, such as
// metrics.k8s.io/v1beta1, is served by every one.
type Served struct {
	release Release
	table   *releases.Table
	config  runtimeConfig
	fields  *fields.Fields
	gates   func(gate string) bool // nil for the release's defaults
}

// Fields returns the fields that the release does not have; nil if it has them all.
func (s Served) Fields() *fields.Fields { return s.fields }

// Table returns the table of releases, without types.
func (s Served) Table() *releases.Table { return s.table }

// Versions returns the served versions of the kind, in the declaration's order: the
// hub, if it is served, is the first.
func (s Served) Versions(k *resource.Kind) []schema.GroupVersionKind {
	var served []schema.GroupVersionKind
	for _, gvk := range k.GVKs() {
		if s.Serves(gvk, k.Name) {
			served = append(served, gvk)
		}
	}
	return served
}

// Order returns versions of a group, which are in the order of their stability, the
// preferred one first: a version that is new in the release comes after those that
// earlier releases have, too, so that clients of both work while servers are updated
// (document 2, section 9, rule 4b).
func (s Served) Order(versions []schema.GroupVersion) []schema.GroupVersion {
	ordered := slices.Clone(versions)
	slices.SortStableFunc(ordered, func(a, b schema.GroupVersion) int { return cmp.Compare(s.isNew(a), s.isNew(b)) })
	return ordered
}

// isNew returns 1 for a version of which earlier releases have no kind.
func (s Served) isNew(gv schema.GroupVersion) int {
	first := releases.Newest + 1
	for i := range s.table.Kinds {
		if k := &s.table.Kinds[i]; k.GroupVersion() == gv {
			first = min(first, k.Served.First)
		}
	}
	if first == s.release.inTable() {
		return 1
	}
	return 0
}

// WithGates returns what is served with feature gates. Without it, all gates are as the
// release has them.
func (s Served) WithGates(enabled func(gate string) bool) Served {
	s.gates = enabled
	return s
}

// kindGates are the feature gates without which kinds are not served, whatever
// --runtime-config says (kubernetes/pkg/registry: certificates, lifecycle, scheduling,
// storagemigration).
var kindGates = map[schema.GroupKind]string{
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:          "ClusterTrustBundle",
	{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}:       "PodCertificateRequest",
	{Group: "lifecycle.k8s.io", Kind: "Eviction"}:                       "EvictionRequestAPI",
	{Group: "lifecycle.k8s.io", Kind: "EvictionRequest"}:                "EvictionRequestAPI",
	{Group: "scheduling.k8s.io", Kind: "CompositePodGroup"}:             "CompositePodGroup",
	{Group: "scheduling.k8s.io", Kind: "PodGroup"}:                      "GenericWorkload",
	{Group: "scheduling.k8s.io", Kind: "Workload"}:                      "GenericWorkload",
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: "StorageVersionMigrator",
}

// The feature gates of subresources.
const (
	ephemeralContainersGate = "EphemeralContainers"
	resizeGate              = "InPlacePodVerticalScaling"
)

// The feature gates of aggregated discovery.
const (
	discoveryGate   = "AggregatedDiscoveryEndpoint"
	withoutBetaGate = "AggregatedDiscoveryRemoveBetaType"
)

// Discovery reports which versions of aggregated discovery are served: v2beta1 as in the
// release, on from 1.27 to 1.32, and v2 since 1.30 and where the release has v2beta1. Clients
// of later releases, such as svc's own, ask for v2 only.
func (s Served) Discovery() (v2beta1, v2 bool) {
	switch r := s.release.inTable(); {
	case r < 26: // Kubernetes does not have the gate
		return false, false
	case r < 30:
		on := s.enabled(discoveryGate)
		return on, on
	case r < 33:
		return true, true
	default:
		return !s.enabled(withoutBetaGate), true
	}
}

// openAPI3Gate is the feature gate of version 3 of the OpenAPI documents.
const openAPI3Gate = "OpenAPIV3"

// OpenAPI3 reports whether version 3 of the OpenAPI documents is served: from 1.24 on, and
// at 1.23 with its feature gate.
func (s Served) OpenAPI3() bool { return s.enabled(openAPI3Gate) }

// ServiceCIDRGate is the feature gate with which services get addresses from the ranges of
// ServiceCIDR objects, at releases that have them as stable kinds.
const ServiceCIDRGate = "MultiCIDRServiceAllocator"

// ActsOn reports whether a feature gate decides which kinds, subresources or forms of discovery
// are served or acted on.
func ActsOn(gate string) bool {
	return slices.Contains([]string{ephemeralContainersGate, resizeGate, ServiceCIDRGate, discoveryGate, withoutBetaGate, openAPI3Gate}, gate) || slices.Contains(slices.Collect(maps.Values(kindGates)), gate)
}

func (s Served) enabled(gate string) bool {
	if s.gates != nil {
		return s.gates(gate)
	}
	return featuregates.On(s.release.inTable(), gate)
}

// ServesSubresource reports whether the release has a subresource of a version of a kind
// that it serves, by the path: pods/exec.
func (s Served) ServesSubresource(gvk schema.GroupVersionKind, path string) bool {
	if strings.HasSuffix(path, "/status") && s.fields.Lacks(gvk, "status") {
		return false
	}
	switch path {
	case "volumeattachments/status": // kubernetes/pkg/registry/storage/rest: of v1 only
		return gvk.Version == "v1"
	case "pods/ephemeralcontainers": // another kind until 1.21
		return !s.release.Before(Release{1, 22}) && s.enabled(ephemeralContainersGate)
	case "pods/resize": // Kubernetes has the gate since 1.27, and the subresource since 1.32
		return s.enabled(resizeGate)
	}
	return true
}

// Serves reports whether the resource (or subresource, such as
// "deployments/scale") is served in the version.
func (s Served) Serves(gvk schema.GroupVersionKind, name string) bool {
	if gate, gated := kindGates[gvk.GroupKind()]; !s.has(gvk) || gated && !s.enabled(gate) {
		return false
	}
	name, _, _ = strings.Cut(name, "/")
	if on, ok := s.config.resources[gvk.GroupVersion().WithResource(name)]; ok {
		return on
	}
	if on, ok := s.config.versions[gvk.GroupVersion()]; ok {
		return on
	}
	if on, ok := s.config.stabilities[stabilityOf(gvk.Version)]; ok {
		return on
	}
	kind := s.table.Kind(gvk)
	return kind == nil || !kind.Off
}

// has reports whether the release has the version of a kind.
func (s Served) has(gvk schema.GroupVersionKind) bool {
	kind := s.table.Kind(gvk)
	return kind == nil || kind.ServedAt(s.release.inTable())
}

// HasLater reports whether a release after this one, up to last, has a version of a kind. Only
// then can these releases have written objects of the kind.
func (s Served) HasLater(k *resource.Kind, last Release) bool {
	return slices.ContainsFunc(k.GVKs(), func(gvk schema.GroupVersionKind) bool {
		kind := s.table.Kind(gvk)
		return kind == nil || kind.Served.First <= last.inTable() && kind.Served.Last > s.release.inTable()
	})
}

// FlagsAt returns the flags by which a server of release r serves a kind, none if it does by
// default; ok is false if the release does not have the kind.
func (s Served) FlagsAt(r Release, k *resource.Kind) (flags []string, ok bool) {
	for _, gvk := range k.GVKs() {
		kind := s.table.Kind(gvk)
		if kind != nil && !kind.ServedAt(r.inTable()) {
			continue
		}
		var needed []string
		if kind != nil && kind.Off {
			needed = append(needed, fmt.Sprintf("--runtime-config=%s=true", gvk.GroupVersion()))
		}
		if gate, gated := kindGates[gvk.GroupKind()]; gated && !featuregates.On(r.inTable(), gate) {
			needed = append(needed, fmt.Sprintf("--feature-gates=%s=true", gate))
		}
		if !ok || len(needed) < len(flags) {
			flags, ok = needed, true
		}
	}
	return flags, ok
}

// Takes reports whether the release takes a version of the body of an action: as Kubernetes
// does, those that the release or an earlier one has added, removed or not.
func (s Served) Takes(gvk schema.GroupVersionKind) bool {
	kind := s.table.Kind(gvk)
	return kind == nil || kind.Served.First <= s.release.inTable()
}

// ServesOther reports whether a stable version that has no declaration is served.
func (s Served) ServesOther(gv schema.GroupVersion) bool {
	if on, ok := s.config.versions[gv]; ok {
		return on
	}
	on, ok := s.config.stabilities[stabilityOf(gv.Version)]
	return on || !ok
}

// stability is the stability level of a version, by its name.
type stability string

const (
	ga    stability = "ga"
	beta  stability = "beta"
	alpha stability = "alpha"
)

func stabilityOf(version string) stability {
	switch {
	case strings.Contains(version, "alpha"):
		return alpha
	case strings.Contains(version, "beta"):
		return beta
	default:
		return ga
	}
}
