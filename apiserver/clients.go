package apiserver

import (
	"fmt"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apimachinery/pkg/runtime"

	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/aggregation"

	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/options"
)

// clients are the server's own, on the internal view.
type clients struct {
	view      *internalView
	requests  *inprocess.Stoppable // in flight
	loopback  *rest.Config
	typed     kubernetes.Interface
	informers informers.SharedInformerFactory
	services  webhook.ServiceResolver
	events    *ownEvents
}

// newClients makes the internal view, and the clients and informers on it.
func newClients(o *options.Options, id *identity, s *stores, behind *hosted, l layers) (*clients, error) {
	internal, err := newInternalView(s.scheme, s.registry, id.authorizers, l)
	if err != nil {
		return nil, fmt.Errorf("internal view: %w", err)
	}
	c := &clients{view: internal}
	if behind != nil {
		c.view.namespaces = behind.namespaces
	}
	c.requests = inprocess.NewStoppable(c.view)
	c.loopback = inprocess.ClientConfig(c.requests)
	config := inProtobuf(c.loopback)
	config.WarningHandler = rest.NoWarnings{}
	if c.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("internal view: %w", err)
	}
	c.events = newOwnEvents(c.typed)
	c.informers = informers.NewSharedInformerFactory(c.typed, 0)
	if roles := id.authorizers.Roles; roles != nil {
		roles.Follow(c.informers.Rbac().V1())
	}
	if nodes := id.authorizers.Nodes; nodes != nil {
		nodes.Follow(c.typed)
	}
	if id.bootstrap != nil {
		id.bootstrap.Follow(c.typed)
	}
	if c.services, err = newServiceResolver(o, c.informers); err != nil {
		return nil, fmt.Errorf("internal view: %w", err)
	}
	return c, nil
}

// inProtobuf returns the configuration of clients that send and accept protobuf, which
// takes the server less time than JSON. All objects must be of Go types.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// newServiceResolver returns how extension servers and webhooks are reached: at
// an endpoint of their service or, without --enable-aggregator-routing, at its
// cluster IP address.
func newServiceResolver(o *options.Options, all informers.SharedInformerFactory) (webhook.ServiceResolver, error) {
	services := aggregation.Services{Lister: all.Core().V1().Services().Lister()}
	if o.Network.AggregatorRouting {
		var err error
		if services.Endpoints, err = proxy.NewEndpointSliceIndexerGetter(all.Discovery().V1().EndpointSlices()); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// webhookAuth returns how the server authenticates to webhooks, and limits their responses.
func (c *clients) webhookAuth() webhook.AuthenticationInfoResolverWrapper {
	return bounded(webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.loopback, noopoteltrace.NewTracerProvider()))
}
