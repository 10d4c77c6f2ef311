package apiserver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	definitions "svc.dev/svc/apis/openapi"
	"svc.dev/svc/apiserver/filters/drain"
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
	docs     *openapi.Documents
	drain    *drain.Drain
	layers   layers
	clock    clock.WithTicker
	// discovered is closed when everything that is served has its routes. Until
	// then, an unknown path is answered with 503 rather than 404.
	discovered chan struct{}
}

func newChain(o *options.Options, id *identity, s *stores, c *clients, l layers, clock clock.WithTicker) *chain {
	docs := openapi.New("svc", documentsVersion(o), definitions.Definitions, func() *runtime.Scheme {
		return apis.NewExternalScheme(s.kinds)
	}, clock)
	return &chain{
		options: o, identity: id, stores: s, clients: c, docs: docs, drain: drain.New(), layers: l, clock: clock,
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
	kinds, groups, err := c.kinds(config, crds.GenericAPIServer)
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
		clock:     c.clock,
		delay:     c.options.Requests.ShutdownDelay,
		address:   config.SecureServing.Listener.Addr().String(),
	}, nil
}

// linkConfig returns the configuration of one server of the chain. All share the
// port, the filters and the life cycle; each has its own hooks, storage and
// documents.
func linkConfig(shared *genericapiserver.RecommendedConfig) genericapiserver.RecommendedConfig {
	config := *shared
	config.PostStartHooks = map[string]genericapiserver.PostStartHookConfigEntry{}
	return config
}

// documentsVersion returns the release and the build, for OpenAPI documents.
func documentsVersion(o *options.Options) string {
	return release.Public(o.Release, release.SVCVersion()).Info().GitVersion
}
