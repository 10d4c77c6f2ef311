package apiserver

import (
	"time"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
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
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"svc.dev/svc/apiserver/aggregation"
	"svc.dev/svc/apiserver/openapi"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/routecache"
	"svc.dev/svc/apiserver/view"
)

// linkConfig is the configuration of one server of the chain: all share the
// port, the filters and the life cycle; hooks, storage and documents are its own.
func linkConfig(shared *genericapiserver.RecommendedConfig) genericapiserver.RecommendedConfig {
	config := *shared
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	return config
}

// customResources is the last link: CustomResourceDefinitions and their objects.
func (b *builder) customResources(shared *genericapiserver.RecommendedConfig) (*apiextensionsserver.CustomResourceDefinitions, error) {
	config := linkConfig(shared)
	config.Serializer = apiextensionsserver.Codecs
	codec := apiextensionsserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	config.RESTOptionsGetter = b.backend.RESTOptions(codec, apiextensionsv1.SchemeGroupVersion)
	docs := openapi.New("svc", b.documentsVersion(), openapi.All(apiextensionsopenapi.GetOpenAPIDefinitions),
		func() *runtime.Scheme { return apiextensionsserver.Scheme })
	config.OpenAPIConfig, config.OpenAPIV3Config = docs.ConfigV2(), docs.ConfigV3()
	made := apiextensionsserver.Config{
		GenericConfig: &config,
		ExtraConfig: apiextensionsserver.ExtraConfig{
			CRDRESTOptionsGetter: b.backend.RESTOptions(unstructured.UnstructuredJSONScheme, nil),
			MasterCount:          1,
			ServiceResolver:      b.services,
			AuthResolverWrapper:  b.webhookAuth(),
		},
	}
	return made.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(
		notfoundhandler.New(config.Serializer, genericapifilters.NoMuxAndDiscoveryIncompleteKey)))
}

// own is the link of the kinds.
func (b *builder) own(shared *genericapiserver.RecommendedConfig, next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, []view.Group, error) {
	config := *shared
	config.EnableDiscovery = false
	server, err := config.Complete().New("svc-apiserver", next)
	if err != nil {
		return nil, nil, err
	}
	container := server.Handler.GoRestfulContainer
	container.Router(&routecache.Router{})
	groups, err := view.View{
		Scheme:              b.scheme,
		Versions:            b.served.Versions,
		Converter:           b.docs.TypeConverter,
		Admission:           config.AdmissionControl,
		Authorizer:          config.Authorization.Authorizer,
		Equivalents:         server.EquivalentResourceRegistry,
		MinRequestTimeout:   time.Duration(config.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: config.MaxRequestBodyBytes,
	}.Install(container, b.registry)
	if err != nil {
		return nil, nil, err
	}
	server.RegisterDestroyFunc(b.registry.Destroy)
	for _, group := range groups {
		describe(server, group)
	}
	b.docs.Install(container, server.Handler.NonGoRestfulMux)
	b.addTokenDiscovery(server)
	return server, groups, nil
}

// describe adds a group to discovery.
func describe(server *genericapiserver.GenericAPIServer, group view.Group) {
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

// aggregator is the first link: APIServices, and the servers behind them.
func (b *builder) aggregator(shared *genericapiserver.RecommendedConfig, own *genericapiserver.GenericAPIServer,
	crds *apiextensionsserver.CustomResourceDefinitions, groups []view.Group,
) (*aggregatorserver.APIAggregator, error) {
	config := linkConfig(shared)
	config.Serializer = aggregatorscheme.Codecs
	codec := aggregatorscheme.Codecs.LegacyCodec(apiregistrationv1.SchemeGroupVersion)
	config.RESTOptionsGetter = b.backend.RESTOptions(codec, apiregistrationv1.SchemeGroupVersion)
	config.SkipOpenAPIInstallation = true
	config.DisabledPostStartHooks = sets.NewString(libraryInformers)
	docs := openapi.New("svc", b.documentsVersion(), openapi.All(aggregatoropenapi.GetOpenAPIDefinitions),
		func() *runtime.Scheme { return aggregatorscheme.Scheme })
	config.OpenAPIConfig, config.OpenAPIV3Config = docs.ConfigV2(), docs.ConfigV3()
	made := aggregatorserver.Config{
		GenericConfig: &config,
		ExtraConfig: aggregatorserver.ExtraConfig{
			ProxyClientCertFile:       b.options.ProxyClientCertFile,
			ProxyClientKeyFile:        b.options.ProxyClientKeyFile,
			ServiceResolver:           b.services,
			RejectForwardingRedirects: true,
		},
	}
	server, err := made.Complete().NewWithDelegate(own)
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
	var local, yielding []schema.GroupVersion
	for _, group := range groups {
		for _, version := range group.Versions {
			local = append(local, version.GroupVersion)
			if group.Name == metricsv1beta1.GroupName {
				yielding = append(yielding, version.GroupVersion)
			}
		}
	}
	client, err := apiregistrationclient.NewForConfig(config.LoopbackClientConfig)
	if err != nil {
		return err
	}
	registration, err := aggregation.New(aggregation.Config{
		Local:       append(local, apiextensionsv1.SchemeGroupVersion),
		Yielding:    yielding,
		CRDs:        crds.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		APIServices: server.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		Client:      client,
	})
	if err != nil {
		return err
	}
	return registration.AddTo(server.GenericAPIServer)
}

// admissionInitializers give the plugins that call out what they need for it.
func (b *builder) admissionInitializers() []admission.PluginInitializer {
	return []admission.PluginInitializer{webhookinit.NewPluginInitializer(b.webhookAuth(), b.services)}
}

func (b *builder) webhookAuth() webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, b.loopback, noopoteltrace.NewTracerProvider())
}

// documentsVersion names the release and the build, for OpenAPI documents.
func (b *builder) documentsVersion() string {
	return release.Public(b.options.Release, release.SVCVersion()).Info().GitVersion
}
