package apiserver

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	aggregatoropenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"svc.dev/svc/apiserver/aggregation"
	"svc.dev/svc/apiserver/view"
)

// aggregator makes the first server: APIServices, and proxies to the servers
// behind them.
func (c *chain) aggregator(shared *genericapiserver.RecommendedConfig, kinds *genericapiserver.GenericAPIServer,
	crds *apiextensionsserver.CustomResourceDefinitions, groups []view.Group,
) (*aggregatorserver.APIAggregator, error) {
	own, err := c.withOlder(library{
		scheme: aggregatorscheme.Scheme, codecs: aggregatorscheme.Codecs, version: apiregistrationv1.SchemeGroupVersion,
		definitions: aggregatoropenapi.GetOpenAPIDefinitions,
	}, olderAPIServices)
	if err != nil {
		return nil, err
	}
	config := c.linkConfig(shared, own)
	config.SkipOpenAPIInstallation = true
	config.DisabledPostStartHooks = sets.NewString(libraryInformers)
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
	c.remote = aggregation.Remote(server.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister())
	// The type converter is made; the documents have only the fields of the release.
	*config.OpenAPIV3Config = *c.documents(own).ConfigV3()
	server.GenericAPIServer.Handler.GoRestfulContainer.ServiceErrorHandler(c.unrouted(&config))
	if err := addAggregatorHooks(&config, server); err != nil {
		return nil, err
	}
	if err := c.addOlderAPIServices(&config, server.GenericAPIServer, own); err != nil {
		return nil, err
	}
	return server, c.registerVersions(&config, server, crds, groups)
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
func (c *chain) registerVersions(config *genericapiserver.RecommendedConfig, server *aggregatorserver.APIAggregator,
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
	registered := aggregation.Config{
		Local:       local,
		Fallback:    fallback,
		APIServices: server.APIRegistrationInformers.Apiregistration().V1().APIServices(),
		Client:      client,
		Clock:       c.clock,
		Full:        c.stores.backend.Full,
	}
	if crds != nil {
		registered.Local = append(registered.Local, apiextensionsv1.SchemeGroupVersion)
		if c.servesOlder(olderDefinitions) {
			registered.Local = append(registered.Local, olderDefinitions.GroupVersion())
		}
		registered.CRDs = crds.Informers.Apiextensions().V1().CustomResourceDefinitions()
	}
	registration, err := aggregation.New(registered)
	if err != nil {
		return err
	}
	return registration.AddTo(server.GenericAPIServer)
}
