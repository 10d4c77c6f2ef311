package apiserver

import (
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"svc.dev/svc/apiserver/view"
)

// kinds makes the server of the kinds.
func (c *chain) kinds(shared *genericapiserver.RecommendedConfig, next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, []view.Group, error) {
	config := *shared
	config.EnableDiscovery = false
	server, err := config.Complete().New("svc-apiserver", next)
	if err != nil {
		return nil, nil, err
	}
	container := server.Handler.GoRestfulContainer
	container.ServiceErrorHandler(c.unrouted(shared))
	routes, err := view.View{
		Scheme:              c.stores.scheme,
		Versions:            c.stores.served.Versions,
		Order:               c.stores.served.Order,
		Subresource:         c.stores.served.ServesSubresource,
		Body:                c.stores.served.Takes,
		Converter:           c.types.TypeConverter,
		Fields:              c.stores.served.Fields(),
		Admission:           c.stores.served.Fields().Admission(config.AdmissionControl, c.stores.hubOf()),
		Authorizer:          config.Authorization.Authorizer,
		Equivalents:         server.EquivalentResourceRegistry,
		MinRequestTimeout:   time.Duration(config.MinRequestTimeout) * time.Second,
		MaxRequestBodyBytes: config.MaxRequestBodyBytes,
		FastJSON:            c.layers.fastJSON(),
		AllRoutes:           c.layers.allRoutes(),
		Items:               c.items,
	}.Install(container, c.stores.registry)
	if err != nil {
		return nil, nil, err
	}
	server.RegisterDestroyFunc(c.stores.registry.Destroy)
	container.Router(c.layers.router(routes))
	for _, group := range routes.Groups {
		addToDiscovery(server, group)
	}
	c.docs.Install(container, routes, server.Handler.NonGoRestfulMux)
	c.identity.addTokenDiscovery(c.options.ServiceAccounts, server)
	return server, routes.Groups, nil
}
