package apiserver

import (
	"context"
	"fmt"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apiserver/aggregation"
	"svc.dev/svc/apiserver/filters/drain"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/openapi"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/routecache"
	"svc.dev/svc/apiserver/view"

	definitions "svc.dev/svc/apis/openapi"
)

// chain joins the stages that a request passes before the stores.
type chain struct {
	options  *options.Options
	identity *identity
	stores   *stores
	clients  *clients
	docs     *openapi.Documents
	drain    *drain.Drain
	// discovered is closed when everything that is served has its routes. Until
	// then, an unknown path is answered with 503 rather than 404.
	discovered chan struct{}
}

func newChain(o *options.Options, id *identity, s *stores, c *clients) *chain {
	docs := openapi.New("svc", documentsVersion(o), definitions.Definitions, func() *runtime.Scheme {
		return apis.NewExternalScheme(s.kinds)
	})
	return &chain{options: o, identity: id, stores: s, clients: c, docs: docs, drain: drain.New(), discovered: make(chan struct{})}
}

// assemble makes the servers that requests are delegated to, the last one first,
// and opens the port.
func (c *chain) assemble(clock clock.WithTicker) (*Server, error) {
	config, err := c.genericConfig()
	if err != nil {
		return nil, err
	}
	if err := c.addAdmission(config); err != nil {
		return nil, err
	}
	crds, err := c.customResources(config)
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	kinds, groups, err := c.kinds(config, noProtobuf{crds.GenericAPIServer, config.Serializer})
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	aggregator, err := c.aggregator(config, kinds, crds, groups)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	steps, err := c.addBootstrap(config, aggregator.GenericAPIServer, clock)
	if err != nil {
		return nil, err
	}
	if gatherer := c.options.Metrics; gatherer != nil {
		installMetrics(aggregator.GenericAPIServer.Handler.NonGoRestfulMux, gatherer, c.options.Features.Profiling)
	}
	prepared, err := aggregator.PrepareRun()
	if err != nil {
		return nil, err
	}
	handler := aggregator.GenericAPIServer.UnprotectedHandler()
	c.clients.view.complete(handler)
	return &Server{
		chain:     prepared,
		handler:   handler,
		backend:   c.stores.backend,
		requests:  c.clients.requests,
		drain:     c.drain,
		discovery: discoverySignals{c.discovered, aggregator.GenericAPIServer.MuxAndDiscoveryCompleteSignals()},
		bootstrap: steps,
		clock:     clock,
		delay:     c.options.Requests.ShutdownDelay,
		address:   config.SecureServing.Listener.Addr().String(),
	}, nil
}

// discoverySignals come when the parts of the server have all their routes.
type discoverySignals struct {
	discovered chan struct{}
	signals    map[string]<-chan struct{}
}

// wait closes discovered when all signals have come. It returns when ctx is done.
func (d discoverySignals) wait(ctx context.Context) {
	for _, signal := range d.signals {
		select {
		case <-signal:
		case <-ctx.Done():
			return
		}
	}
	close(d.discovered)
}

// linkConfig returns the configuration of one server of the chain. All share the
// port, the filters and the life cycle; each has its own hooks, storage and
// documents.
func linkConfig(shared *genericapiserver.RecommendedConfig) genericapiserver.RecommendedConfig {
	config := *shared
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	return config
}

// customResources makes the last server: CustomResourceDefinitions and their
// objects.
func (c *chain) customResources(shared *genericapiserver.RecommendedConfig) (*apiextensionsserver.CustomResourceDefinitions, error) {
	config := linkConfig(shared)
	config.Serializer = apiextensionsserver.Codecs
	codec := apiextensionsserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	config.RESTOptionsGetter = c.stores.backend.RESTOptions(codec, apiextensionsv1.SchemeGroupVersion)
	docs := openapi.New("svc", documentsVersion(c.options), openapi.All(apiextensionsopenapi.GetOpenAPIDefinitions),
		func() *runtime.Scheme { return apiextensionsserver.Scheme })
	config.OpenAPIConfig, config.OpenAPIV3Config = docs.ConfigV2(), docs.ConfigV3()
	made := apiextensionsserver.Config{
		GenericConfig: &config,
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: c.stores.backend.RESTOptions(unstructured.UnstructuredJSONScheme, nil),
			MasterCount:          1,
			ServiceResolver:      c.clients.services,
			AuthResolverWrapper:  c.clients.webhookAuth(),
		},
	}
	server, err := made.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(
		notfoundhandler.New(config.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)))
	if err != nil {
		return nil, err
	}
	return server, server.Informers.Apiextensions().V1().CustomResourceDefinitions().Informer().SetTransform(addCreatedAt)
}

// kinds makes the server of the kinds.
func (c *chain) kinds(shared *genericapiserver.RecommendedConfig, next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, []view.Group, error) {
	config := *shared
	config.EnableDiscovery = false
	server, err := config.Complete().New("svc-apiserver", next)
	if err != nil {
		return nil, nil, err
	}
	container := server.Handler.GoRestfulContainer
	if config.FeatureGate.Enabled(gates.SvcCachedRoutes) {
		container.Router(&routecache.Router{})
	}
	groups, err := view.View{
		Scheme:              c.stores.scheme,
		Versions:            c.stores.served.Versions,
		Converter:           c.docs.TypeConverter,
		Admission:           config.AdmissionControl,
		Authorizer:          config.Authorization.Authorizer,
		Equivalents:         server.EquivalentResourceRegistry,
		MinRequestTimeout:   time.Duration(config.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: config.MaxRequestBodyBytes,
		FastJSON:            config.FeatureGate.Enabled(gates.SvcFastJSON),
	}.Install(container, c.stores.registry)
	if err != nil {
		return nil, nil, err
	}
	server.RegisterDestroyFunc(c.stores.registry.Destroy)
	for _, group := range groups {
		addToDiscovery(server, group)
	}
	c.docs.Install(container, server.Handler.NonGoRestfulMux)
	c.identity.addTokenDiscovery(c.options.ServiceAccounts, server)
	return server, groups, nil
}

// addToDiscovery adds a group to the documents of discovery.
func addToDiscovery(server *genericapiserver.GenericAPIServer, group view.Group) {
	container := server.Handler.GoRestfulContainer
	manager := server.AggregatedDiscoveryGroupManager
	if group.Name == "" {
		manager = server.AggregatedLegacyDiscoveryGroupManager
	}
	for _, version := range group.Versions {
		manager.AddGroupVersion(group.Name, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: version.Version, Resources: version.Resources,
		})
	}
	if group.Name == "" {
		core := discovery.NewLegacyRootAPIHandler(discovery.DefaultAddresses{DefaultAddress: server.ExternalAddress}, server.Serializer, genericapiserver.DefaultLegacyAPIPrefix)
		wrapped := aggregated.WrapAggregatedDiscoveryToHandler(core, manager, manager)
		container.Add(wrapped.GenerateWebService(genericapiserver.DefaultLegacyAPIPrefix, metav1.APIVersions{}))
		return
	}
	server.DiscoveryGroupManager.AddGroup(group.APIGroup())
	container.Add(discovery.NewAPIGroupHandler(server.Serializer, group.APIGroup()).WebService())
}

// aggregator makes the first server: APIServices, and proxies to the servers
// behind them.
func (c *chain) aggregator(shared *genericapiserver.RecommendedConfig, kinds *genericapiserver.GenericAPIServer,
	crds *apiextensionsserver.CustomResourceDefinitions, groups []view.Group,
) (*aggregatorserver.APIAggregator, error) {
	config := linkConfig(shared)
	config.Serializer = aggregatorscheme.Codecs
	codec := aggregatorscheme.Codecs.LegacyCodec(apiregistrationv1.SchemeGroupVersion)
	config.RESTOptionsGetter = c.stores.backend.RESTOptions(codec, apiregistrationv1.SchemeGroupVersion)
	config.SkipOpenAPIInstallation = true
	config.DisabledPostStartHooks = sets.NewString(libraryInformers)
	docs := openapi.New("svc", documentsVersion(c.options), openapi.All(aggregatoropenapi.GetOpenAPIDefinitions),
		func() *runtime.Scheme { return aggregatorscheme.Scheme })
	config.OpenAPIConfig, config.OpenAPIV3Config = docs.ConfigV2(), docs.ConfigV3()
	made := aggregatorserver.Config{
		GenericConfig: &config,
		ExtraConfig: aggregatorserver.ExtraConfig{
			ProxyClientCertFile:       c.options.ProxyClientCertFile,
			ProxyClientKeyFile:        c.options.ProxyClientKeyFile,
			ServiceResolver:           c.clients.services,
			RejectForwardingRedirects: true,
		},
	}
	server, err := made.Complete().NewWithDelegate(kinds)
	if err != nil {
		return nil, err
	}
	if err := addAggregatorHooks(&config, server); err != nil {
		return nil, err
	}
	return server, registerVersions(&config, server, crds, groups)
}

// libraryInformers is the library's name for the hook that starts the
// informers of the aggregator.
const libraryInformers = "start-kube-aggregator-informers"

// addAggregatorHooks adds the hooks that the specification names (document 2,
// section 4) and the library names otherwise.
func addAggregatorHooks(config *genericapiserver.RecommendedConfig, server *aggregatorserver.APIAggregator) error {
	if err := server.GenericAPIServer.AddPostStartHook("start-svc-aggregator-informers", func(hook genericapiserver.PostStartHookContext) error {
		server.APIRegistrationInformers.Start(hook.Done())
		config.SharedInformerFactory.Start(hook.Done())
		return nil
	}); err != nil {
		return err
	}
	// The library has two such controllers, for local and for remote servers:
	// both begin when the APIServices are known.
	return server.GenericAPIServer.AddPostStartHook("apiservice-status-available-controller", func(hook genericapiserver.PostStartHookContext) error {
		cache.WaitForCacheSync(hook.Done(), server.APIRegistrationInformers.Apiregistration().V1().APIServices().Informer().HasSynced)
		return nil
	})
}

// registerVersions makes the APIServices of the versions served in this process.
func registerVersions(config *genericapiserver.RecommendedConfig, server *aggregatorserver.APIAggregator,
	crds *apiextensionsserver.CustomResourceDefinitions, groups []view.Group,
) error {
	var local, fallback []schema.GroupVersion
	for _, group := range groups {
		for _, version := range group.Versions {
			local = append(local, version.GroupVersion)
			if group.Name == metricsv1beta1.GroupName {
				fallback = append(fallback, version.GroupVersion)
			}
		}
	}
	client, err := apiregistrationclient.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	registration, err := aggregation.New(aggregation.Config{
		Local:       append(local, apiextensionsv1.SchemeGroupVersion),
		Fallback:    fallback,
		CRDs:        crds.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		APIServices: server.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		Client:      client,
	})
	if err != nil {
		return err
	}
	return registration.AddTo(server.GenericAPIServer)
}

// admissionInitializers give webhook plugins their client and resolver.
func (c *chain) admissionInitializers() []admission.PluginInitializer {
	return []admission.PluginInitializer{webhookinit.NewPluginInitializer(c.clients.webhookAuth(), c.clients.services)}
}

// documentsVersion returns the release and the build, for OpenAPI documents.
func documentsVersion(o *options.Options) string {
	return release.Public(o.Release, release.SVCVersion()).Info().GitVersion
}
