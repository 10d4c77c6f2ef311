package apiserver

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/component-base/featuregate"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/core"
	"svc.dev/svc/apis/resource"

	"svc.dev/svc/apiserver/encryption"
	"svc.dev/svc/apiserver/established"
	"svc.dev/svc/apiserver/gates"
	servermetrics "svc.dev/svc/apiserver/metrics"
	"svc.dev/svc/apiserver/nodeproxy"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/release/fields"
	"svc.dev/svc/apiserver/release/rules"
	"svc.dev/svc/apiserver/reservation"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/releases"
)

// stores hold the objects of all kinds, and what the kinds use of the server.
type stores struct {
	kinds        []*resource.Kind
	served       release.Served
	scheme       *runtime.Scheme
	backend      *storage.Backend
	encryption   *encryption.Encryption
	reservations *reservation.Store
	servers      *established.Servers
	allocations  *servermetrics.Allocations
	env          *resource.Env
	registry     *registry.Registry
	// recorded decides whether the release may serve what is stored.
	recorded *recordedRelease
	// gate reports whether a feature gate is on at the release.
	gate func(gate string) bool
}

// newStores opens the connection to etcd, which close closes, and installs the
// storage of the kinds in the registry. It does not wait for etcd.
func newStores(o *options.Options, id *identity, r *registry.Registry, l layers, serverID string, clock clock.WithTicker) (*stores, error) {
	s := &stores{kinds: kindsOf(o), registry: r, allocations: servermetrics.NewAllocations()}
	var err error
	if s.served, err = release.NewServed(o.Release, o.RuntimeConfig, s.kinds,
		apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if err = s.setGates(releases.Release(o.Release.Minor)); err != nil {
		return nil, err
	}
	if err = checkOverrides(o.Etcd.Overrides, s.kinds); err != nil {
		return nil, err
	}
	for _, kind := range s.kinds {
		kind.Generation = kind.Generation && s.countsGenerations(kind)
		kind.Versions = slices.Clone(kind.Versions) // those of the declaration
		for i, v := range kind.Versions {
			kind.Versions[i] = v.At(s.served.Fields().Lacks)
		}
		kind.Columns = slices.DeleteFunc(kind.Columns, func(c resource.KindColumn) bool { return !c.In(o.Release.Minor) })
	}
	if gv := apiregistrationv1.SchemeGroupVersion; !s.served.ServesOther(gv) {
		return nil, fmt.Errorf("--runtime-config: %s cannot be disabled, since the aggregation layer serves all API groups; add %s=true", gv, gv)
	}
	if s.scheme, err = apis.NewScheme(s.kinds); err != nil {
		return nil, err
	}
	if s.encryption, err = encryption.Open(o.Encryption, serverID); err != nil {
		return nil, err
	}
	etcd := o.Etcd
	etcd.SharedWatches, etcd.PartWatches, etcd.HistoryBytes = l.sharedWatches(), l.partWatches(), l.historyBytes()
	etcd.Transformers, etcd.Clock = s.encryption.ResourceTransformers, clock
	etcd.Writable = func() error { return s.recorded.writable() }
	etcd.Deletable = func() error { return s.recorded.deletable() }
	if s.backend, err = storage.Open(etcd); err != nil {
		s.encryption.Close()
		return nil, err
	}
	s.reservations = reservation.New(s.backend.Client().KV, s.backend.Prefix(), clock)
	s.recorded = newRecordedRelease(o, s, clock)
	s.servers = established.NewServers(s.backend.Client(), s.backend.Prefix(), serverID, s.backend.Embedded())
	if s.env, err = s.newEnv(o, id, clock); err != nil {
		return nil, errors.Join(err, s.close())
	}
	codec, versioner := storage.KindCodec(s.scheme, s.kinds)
	if err := r.Install(s.kinds, s.scheme, s.backend.RESTOptions(codec, versioner), s.env); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// countsGenerations reports whether the release counts the generations of a kind: since its
// status tells which of them has been observed, those of pods since 1.33 (KEP-5067), or with
// its gate.
func (s *stores) countsGenerations(kind *resource.Kind) bool {
	if kind.GenerationGate != "" {
		return s.gate(kind.GenerationGate)
	}
	return !s.served.Fields().Lacks(kind.Hub, "status", "observedGeneration")
}

// setGates lets the feature gates of a release decide what is served, which fields are
// stored, and what validation refuses.
func (s *stores) setGates(r releases.Release) error {
	set, err := gates.At(r, utilfeature.DefaultFeatureGate)
	if err != nil {
		return err
	}
	enabled := func(gate string) bool { return set.Enabled(featuregate.Feature(gate)) }
	s.served, s.gate = s.served.WithGates(enabled), enabled
	gated, err := fields.NewGated(r, enabled)
	if err != nil {
		return err
	}
	for _, kind := range s.kinds {
		if kind.Stored() {
			dropGated(kind, gated)
			rules.Apply(kind, enabled)
			rules.AcceptZones(kind, r)
		}
	}
	return nil
}

// dropGated removes the fields whose feature gates are off from the writes and the defaults
// of a kind, with a warning for what the client has set.
func dropGated(kind *resource.Kind, gated *fields.Gated) {
	create, update, status := kind.PrepareCreate, kind.PrepareUpdate, kind.PrepareStatus
	kind.Default = gated.Default(kind.New(), kind.Default)
	drop := func(ctx context.Context, obj, old runtime.Object) {
		for _, text := range gated.Drop(obj, old) {
			warning.AddWarning(ctx, "", text)
		}
	}
	kind.PrepareCreate = func(ctx context.Context, env *resource.Env, obj runtime.Object) {
		drop(ctx, obj, nil)
		create(ctx, env, obj)
		gated.Drop(obj, nil) // what the server has set
	}
	kind.PrepareUpdate = func(ctx context.Context, env *resource.Env, obj, old runtime.Object) {
		drop(ctx, obj, old)
		update(ctx, env, obj, old)
		gated.Drop(obj, old)
	}
	kind.PrepareStatus = dropAfter(status, gated)
	for i := range kind.Views {
		kind.Views[i].Prepare = dropAfter(kind.Views[i].Prepare, gated)
	}
}

func dropAfter(prepare func(env *resource.Env, obj, old runtime.Object), gated *fields.Gated) func(env *resource.Env, obj, old runtime.Object) {
	return func(env *resource.Env, obj, old runtime.Object) {
		prepare(env, obj, old)
		gated.Drop(obj, old)
	}
}

// hubOf returns a function that returns the kind of an object as it is in memory.
func (s *stores) hubOf() func(runtime.Object) (schema.GroupVersionKind, bool) {
	hubs := map[reflect.Type]schema.GroupVersionKind{}
	for _, k := range s.kinds {
		hubs[reflect.TypeOf(k.New())] = k.Hub
	}
	return func(obj runtime.Object) (schema.GroupVersionKind, bool) {
		hub, ok := hubs[reflect.TypeOf(obj)]
		return hub, ok
	}
}

// countAllocation counts an attempt to allocate an address or a node port.
func (s *stores) countAllocation(pool, part string, static bool, err error) {
	switch pool {
	case core.ServiceIPPool:
		s.allocations.Address(part, static, err)
	case core.ServiceNodePortPool:
		s.allocations.Port(static, err)
	}
}

// kindsOf returns the kinds that the options enable.
func kindsOf(o *options.Options) []*resource.Kind {
	kinds := apis.Kinds()
	if o.Agents.Metrics {
		return kinds
	}
	return slices.DeleteFunc(kinds, func(k *resource.Kind) bool { return k.Hub.Group == metrics.GroupName })
}

// newEnv returns what the hooks and actions of the kinds may use of the server.
func (s *stores) newEnv(o *options.Options, id *identity, clock clock.Clock) (*resource.Env, error) {
	cidrs, err := o.Network.ServiceCIDRs()
	if err != nil {
		return nil, err
	}
	nodes, err := nodeproxy.New(o.Agents)
	if err != nil {
		return nil, fmt.Errorf("--svclet-certificate-authority, --svclet-client-certificate: %w", err)
	}
	ports := o.Network.ServiceNodePortRange
	return &resource.Env{
		Clock:           clock,
		Objects:         s.registry.Objects,
		Reservations:    s.reservations.Pool,
		CountAllocation: s.countAllocation,
		ServiceCIDRs:    cidrs,
		NodePorts:       resource.PortRange{From: int32(ports.Base), To: int32(ports.Base + ports.Size - 1)},
		Tokens:          id.tokens,
		NodeTokens:      s.gate(string(gates.ServiceAccountTokenNodeBinding)),
		AllowPrivileged: o.AllowPrivileged,
		BindingLabels:   s.gate(string(gates.PodTopologyLabelsAdmission)),
		AppArmorFields: !s.served.Fields().Lacks(corev1.SchemeGroupVersion.WithKind("Pod"),
			"spec", "containers", "securityContext", "appArmorProfile"),
		SpreadSelectors:    s.gate(string(gates.MatchLabelKeysInPodTopologySpreadSelectorMerge)),
		PodResources:       s.gate(string(gates.PodLevelResourcesFixDefaulting)),
		ResizePodResources: s.gate(string(gates.InPlacePodLevelResourcesVerticalScaling)),
		ProxyBySlices:      !o.Release.Before(release.Release{Major: 1, Minor: 37}),
		EventTTL:           o.EventTTL,
		Authorizer:         id.authorizers,
		Rules:              id.authorizers,
		Authenticator:      id.Identified,
		Audiences:          id.authentication.Audiences,
		Etcd:               s.backend.Check,
		Agents:             nodes,
	}, nil
}

// close stops all stores and closes the connections to etcd and to KMS plugins.
func (s *stores) close() error {
	s.registry.Destroy()
	s.encryption.Close()
	return s.backend.Close()
}
