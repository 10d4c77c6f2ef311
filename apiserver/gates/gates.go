// Package gates owns the feature gates: svc's own, and the defaults of the
// libraries' gates.
package gates

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"

	"svc.dev/svc/internal/featuregates"
	"svc.dev/svc/internal/releases"
)

// The gates of layers of the API server that exist only for speed or memory. Each layer has
// the same results as the code of the library that it replaces, which runs if the
// gate is off. docs/decisions/ has the measurements.
const (
	// SvcBatchedWrites batches the writes to a connection (apiserver/netbatch).
	SvcBatchedWrites featuregate.Feature = "SvcBatchedWrites"
	// SvcSharedWatches serves equal watches by one watch of the cache (apiserver/watchmux).
	SvcSharedWatches featuregate.Feature = "SvcSharedWatches"
	// SvcPartWatches begins watches of a part of a kind with a list from the cache
	// (apiserver/storage).
	SvcPartWatches featuregate.Feature = "SvcPartWatches"
	// SvcCachedRoutes caches the routes of requests (apiserver/routecache).
	SvcCachedRoutes featuregate.Feature = "SvcCachedRoutes"
	// SvcFastJSON encodes and decodes JSON without reading parts of it twice
	// (apiserver/jsonencoding).
	SvcFastJSON featuregate.Feature = "SvcFastJSON"
	// SvcCachedLists writes the items of repeated lists from bytes
	// (apiserver/itemcache), of built-in kinds only if SvcFastJSON is on, too.
	SvcCachedLists featuregate.Feature = "SvcCachedLists"
	// SvcBoundedHistory bounds the history of watch caches by bytes (apiserver/storage).
	SvcBoundedHistory featuregate.Feature = "SvcBoundedHistory"
	// SvcLazyRoutes makes the routes of a resource with the first request for it
	// (apiserver/view).
	SvcLazyRoutes featuregate.Feature = "SvcLazyRoutes"
	// SvcSharedDefinitions lets the states of a CustomResourceDefinition that are in
	// memory share their specification (apiserver).
	SvcSharedDefinitions featuregate.Feature = "SvcSharedDefinitions"
	// SvcEarlyInformers waits for the server's informers before the post-start hooks,
	// which poll for them (apiserver).
	SvcEarlyInformers featuregate.Feature = "SvcEarlyInformers"
	// SvcShortLog keeps less of raft's log in memory and on disk than etcd does by default
	// (apiserver/etcd).
	SvcShortLog featuregate.Feature = "SvcShortLog"
)

// APIPriorityAndFairness is the gate of --enable-priority-and-fairness.
const APIPriorityAndFairness featuregate.Feature = "APIPriorityAndFairness"

// APIServerTracing is the gate of --tracing-config-file.
const APIServerTracing featuregate.Feature = "APIServerTracing"

// The gates of a release that decide what the chain of filters and plugins has, whatever
// the libraries have by default.
const (
	ConstrainedImpersonation  featuregate.Feature = "ConstrainedImpersonation"
	ValidatingAdmissionPolicy featuregate.Feature = "ValidatingAdmissionPolicy"
	MutatingAdmissionPolicy   featuregate.Feature = "MutatingAdmissionPolicy"
	// ExcludeAdmissionWebhookVirtualResources keeps admission webhooks from intercepting reviews
	// of tokens and access.
	ExcludeAdmissionWebhookVirtualResources featuregate.Feature = "ExcludeAdmissionWebhookVirtualResources"
	// AllowInsecureSvcletCertificateSigningRequests lets nodes request certificates of other
	// nodes' names, as before 1.31. Kubernetes' name has Kubelet.
	AllowInsecureSvcletCertificateSigningRequests featuregate.Feature = "AllowInsecureSvcletCertificateSigningRequests"
	// AuthorizeNodeWithSelectors restricts nodes to reading their own Node and pods.
	AuthorizeNodeWithSelectors featuregate.Feature = "AuthorizeNodeWithSelectors"
	// CSIVolumeHealth lets nodes report the health of their storage in their CSINode.
	CSIVolumeHealth featuregate.Feature = "CSIVolumeHealth"
	// ServiceAccountNodeAudienceRestriction restricts the audiences of the tokens that nodes
	// request.
	ServiceAccountNodeAudienceRestriction featuregate.Feature = "ServiceAccountNodeAudienceRestriction"
	// ServiceAccountTokenNodeBinding allows tokens that are bound to a node.
	ServiceAccountTokenNodeBinding featuregate.Feature = "ServiceAccountTokenNodeBinding"
	// PodTopologyLabelsAdmission gives pods the zone and region of their node as labels.
	PodTopologyLabelsAdmission featuregate.Feature = "PodTopologyLabelsAdmission"
	// MatchLabelKeysInPodTopologySpreadSelectorMerge adds the values of matchLabelKeys to the
	// selectors of topology spread constraints of pods.
	MatchLabelKeysInPodTopologySpreadSelectorMerge featuregate.Feature = "MatchLabelKeysInPodTopologySpreadSelectorMerge"
	// PodLevelResourcesFixDefaulting completes pod-level resources after admission.
	PodLevelResourcesFixDefaulting featuregate.Feature = "PodLevelResourcesFixDefaulting"
	// InPlacePodLevelResourcesVerticalScaling lets a resize change pod-level resources.
	InPlacePodLevelResourcesVerticalScaling featuregate.Feature = "InPlacePodLevelResourcesVerticalScaling"
	// HPAGeneration counts the generations of autoscalers.
	HPAGeneration featuregate.Feature = "HPAGeneration"
	// DRAExtendedResource lets device classes offer extended resources.
	DRAExtendedResource featuregate.Feature = "DRAExtendedResource"
	// DRAResourceClaimGranularStatusAuthorization requires permissions for what updates of the
	// status of ResourceClaims change.
	DRAResourceClaimGranularStatusAuthorization featuregate.Feature = "DRAResourceClaimGranularStatusAuthorization"
	// NodeDeclaredFeatures lets nodes declare features that pods need of them.
	NodeDeclaredFeatures featuregate.Feature = "NodeDeclaredFeatures"
)

// Own returns svc's own gates.
func Own() []featuregate.Feature {
	return []featuregate.Feature{
		SvcBatchedWrites, SvcSharedWatches, SvcPartWatches, SvcCachedRoutes, SvcFastJSON, SvcCachedLists, SvcBoundedHistory,
		SvcLazyRoutes, SvcSharedDefinitions, SvcEarlyInformers, SvcShortLog,
	}
}

// unsupported are the library's gates that svc does not offer, and why.
var unsupported = map[featuregate.Feature]string{
	features.StorageVersionAPI:     "each svc reads every version of all kinds, so that its servers record no storage versions",
	features.CBORServingAndStorage: "only custom resources would have CBOR",
}

// Validate returns an error for each gate that is enabled and that svc does not
// offer.
func Validate(enabled featuregate.FeatureGate) []error {
	var errs []error
	for _, feature := range slices.Sorted(maps.Keys(unsupported)) {
		if enabled.Enabled(feature) {
			errs = append(errs, fmt.Errorf("--feature-gates: %s is not supported: %s; set %s=false", feature, unsupported[feature], feature))
		}
	}
	return errs
}

// Set adds svc's own gates, which are on, and those of all releases that the libraries
// do not have, and sets the defaults of the libraries' gates, which are global. A
// program or a test suite calls it once, before it defines flags. The added gates have the
// defaults of release 1.28, no stage of a release, and can all be set: At finds out what a
// release allows.
//
// Streaming lists are alpha and off in the specification (document 1, sections 4
// and 9), so svc's own clients do not ask for them, and servers only offer them at the
// releases that SetLibraries knows; the proxy to API servers of other versions is
// off, too (document 3 section 9). One goroutine decodes the events
// of a type, as in release 1.28: with a goroutine for each event, an event is handed
// over twice more.
func Set() error {
	own := map[featuregate.Feature]featuregate.FeatureSpec{}
	for _, feature := range Own() {
		own[feature] = featuregate.FeatureSpec{Default: true, PreRelease: featuregate.Beta}
	}
	libraries := utilfeature.DefaultMutableFeatureGate.GetAll()
	on := map[string]bool{} // off, if 1.28 does not have it
	for _, gate := range featuregates.All() {
		on[gate.Name] = gate.Default
	}
	ever, err := featuregates.Ever()
	if err != nil {
		return err
	}
	for _, name := range ever {
		if _, has := libraries[featuregate.Feature(name)]; !has {
			own[featuregate.Feature(name)] = featuregate.FeatureSpec{Default: on[name], PreRelease: featuregate.Alpha}
		}
	}
	if err := utilfeature.DefaultMutableFeatureGate.Add(own); err != nil {
		return err
	}
	for _, feature := range []featuregate.Feature{features.WatchList, features.ConcurrentWatchObjectDecode, features.UnknownVersionInteroperabilityProxy} {
		if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(feature, false); err != nil {
			return err
		}
	}
	client, ok := clientfeatures.FeatureGates().(interface {
		Set(feature clientfeatures.Feature, value bool) error
	})
	if !ok {
		return nil // another package has replaced the gates of client-go
	}
	return client.Set(clientfeatures.WatchListClient, false)
}

// ofRelease are the gates of libraries that have the values of the release, since clients or
// operators see what they change: streaming lists (KEP-3157), the deletion of objects that
// cannot be read (KEP-3926), version 1 of KMS plugins, UIDs in client certificates,
// generations in the status of definitions, and /statusz. The other gates of libraries decide
// about speed, memory and safety, or about flags that svc has at every release
// (RemoteRequestHeaderUID), and keep the libraries' defaults.
var ofRelease = []featuregate.Feature{
	features.WatchList, features.AllowUnsafeMalformedObjectDeletion, features.KMSv1, features.AllowParsingUserUIDFromCertAuth,
	"CRDObservedGenerationTracking", "ComponentStatusz",
}

// lastKMSv1 is the last release with version 1 of KMS plugins on by default. Releases before it
// have no gate for it, and neither has document 3.
const lastKMSv1 releases.Release = 28

// SetLibraries gives the gates of libraries that clients or operators see the values of a
// release. It is called before a server makes its stores.
func SetLibraries(r releases.Release) error {
	set, err := At(r, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	libraries, ok := utilfeature.DefaultMutableFeatureGate.(featuregate.MutableFeatureGateWithLogger)
	if !ok {
		return fmt.Errorf("feature gates of type %T log without a logger", utilfeature.DefaultMutableFeatureGate)
	}
	for _, feature := range ofRelease {
		on := set.Enabled(feature) || feature == features.KMSv1 && r <= lastKMSv1
		if utilfeature.DefaultFeatureGate.Enabled(feature) == on {
			continue
		}
		// The log would warn that the gate is deprecated.
		if err := libraries.OverrideDefaultWithLogger(logr.Discard(), feature, on); err != nil {
			return err
		}
	}
	return nil
}
