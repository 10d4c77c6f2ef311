package apiserver

import (
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	definitions "svc.dev/svc/apis/openapi"
	"svc.dev/svc/apiserver/filters/deprecation"
	"svc.dev/svc/apiserver/filters/drain"
	"svc.dev/svc/apiserver/itemcache"
	"svc.dev/svc/apiserver/openapi"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/release"
)

// chain makes the stages that a request passes before the stores.
type chain struct {
	options  *options.Options
	identity *identity
	stores   *stores
	clients  *clients
	// addresses is nil if cluster IP addresses have no objects.
	addresses *addresses
	// aggregated is nil for a standalone server.
	hosted *hosted
	docs   *openapi.Documents
	// types have all fields, which objects may have that another release wrote.
	types  *openapi.Documents
	drain  *drain.Drain
	layers layers
	items  *itemcache.Cache // nil for none
	// deprecated are the versions that the libraries have deprecated.
	deprecated *deprecation.Versions
	clock      clock.WithTicker
	// remote reports whether a request is proxied to the server of an APIService. It is
	// set before requests are served.
	remote func(*http.Request) bool
	// discovered is closed when everything that is served has its routes. Until
	// then, an unknown path is answered with 503 rather than 404.
	discovered chan struct{}
}

func newChain(o *options.Options, id *identity, s *stores, c *clients, a *addresses, behind *hosted, l layers, clock clock.WithTicker) *chain {
	scheme := sync.OnceValue(func() *runtime.Scheme { return apis.NewExternalScheme(s.kinds) })
	types := openapi.New("svc", documentsVersion(o), definitions.Definitions, scheme, clock)
	docs := openapi.New("svc", documentsVersion(o), s.served.Fields().Definitions(definitions.Definitions), scheme, clock)
	return &chain{
		options: o, identity: id, stores: s, clients: c, addresses: a, hosted: behind, docs: docs, types: types, drain: drain.New(), layers: l, items: l.items(clock), clock: clock,
		deprecated: deprecation.At(o.Release, s.served.Table(), s.kinds),
		discovered: make(chan struct{}),
	}
}

// assemble makes the servers that requests are delegated to, the last one first,
// and opens the port.
func (c *chain) assemble() (*Server, error) {
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
	kinds, groups, err := c.kinds(config, c.afterKinds(config, crds))
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	aggregator, err := c.aggregator(config, kinds, crds, groups)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	steps, err := c.addBootstrap(config, aggregator.GenericAPIServer)
	if err != nil {
		return nil, err
	}
	c.installMetrics(aggregator.GenericAPIServer.Handler.NonGoRestfulMux, existing(crds, aggregator))
	if !c.stores.served.OpenAPI3() {
		indexWithoutOpenAPI3(aggregator.GenericAPIServer)
	}
	prepared, err := prepare(aggregator)
	if err != nil {
		return nil, err
	}
	informers := []informerFactory{config.SharedInformerFactory, aggregator.APIRegistrationInformers}
	if crds != nil {
		informers = append(informers, crds.Informers)
	}
	handler := aggregator.GenericAPIServer.UnprotectedHandler()
	c.clients.view.complete(handler)
	return &Server{
		chain:        prepared,
		handler:      handler,
		identity:     c.identity,
		backend:      c.stores.backend,
		servers:      c.stores.servers,
		items:        c.items,
		recorded:     c.stores.recorded,
		objectCounts: config.StorageObjectCountTracker,
		encryption:   c.stores.encryption,
		requests:     c.clients.requests,
		drain:        c.drain,
		discovery:    discoverySignals{c.discovered, aggregator.GenericAPIServer.MuxAndDiscoveryCompleteSignals()},
		bootstrap:    steps,
		informers:    c.layers.earlyInformers(informers),
		clock:        c.clock,
		delay:        c.options.Requests.ShutdownDelay,
		listener:     config.SecureServing.Listener,
		address:      config.SecureServing.Listener.Addr().String(),
	}, nil
}

// prepare prepares the servers of the chain to run, in a goroutine of its own, whose stack
// is short: the library keeps the text of the stack with each of the hundreds of paths that
// it adds.
func prepare(aggregator *aggregatorserver.APIAggregator) (prepared runnable, err error) {
	var done sync.WaitGroup
	done.Go(func() { prepared, err = aggregator.PrepareRun() })
	done.Wait()
	return prepared, err
}

// library is what a server of the libraries has of its own: its types, and their
// documents.
type library struct {
	scheme      *runtime.Scheme
	codecs      serializer.CodecFactory
	version     schema.GroupVersion // in which its objects are stored
	definitions common.GetOpenAPIDefinitions
	// stored changes the codec of its stored objects, if it is not nil.
	stored func(runtime.Codec) runtime.Codec
}

// inMemory returns the kind of an object of the library as it is in memory: of its internal
// version. Custom resources have none.
func (l library) inMemory(obj runtime.Object) (schema.GroupVersionKind, bool) {
	if _, custom := obj.(runtime.Unstructured); custom {
		return schema.GroupVersionKind{}, false
	}
	gvks, _, err := l.scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, false
	}
	return gvks[0], true
}

// linkConfig returns the configuration of a server of the libraries in the chain.
// All share the port, the filters and the life cycle; each has its own hooks,
// storage and documents.
func (c *chain) linkConfig(shared *genericapiserver.RecommendedConfig, own library) genericapiserver.RecommendedConfig {
	config := *shared
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	config.Serializer = own.codecs
	config.LoopbackClientConfig = inProtobuf(shared.LoopbackClientConfig)
	config.AdmissionControl = c.stores.served.Fields().Admission(shared.AdmissionControl, own.inMemory)
	stored := own.codecs.LegacyCodec(own.version)
	if own.stored != nil {
		stored = own.stored(stored)
	}
	config.RESTOptionsGetter = c.stores.backend.RESTOptions(stored, own.version)
	config.OpenAPIConfig, config.OpenAPIV3Config = c.documents(own).ConfigV2(), c.typesOf(own).ConfigV3()
	return config
}

// typesOf returns the documents of a server of the libraries for type converters: they have
// the fields that the release lacks, too, as stored objects do (managedFields).
func (c *chain) typesOf(own library) *openapi.Documents {
	return openapi.New("svc", documentsVersion(c.options), openapi.All(own.definitions), func() *runtime.Scheme { return own.scheme }, c.clock)
}

// documents returns the documents of a server of the libraries.
func (c *chain) documents(own library) *openapi.Documents {
	return openapi.New("svc", documentsVersion(c.options), c.stores.served.Fields().Definitions(openapi.All(own.definitions)),
		func() *runtime.Scheme { return own.scheme }, c.clock)
}

// documentsVersion returns the release and the build, for OpenAPI documents.
func documentsVersion(o *options.Options) string {
	return release.Public(o.Release, release.SVCVersion()).Info().GitVersion
}
