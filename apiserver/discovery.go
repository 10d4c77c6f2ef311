package apiserver

import (
	"context"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"svc.dev/svc/apiserver/view"
)

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
