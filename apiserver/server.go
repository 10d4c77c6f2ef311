// Package apiserver is the API server: the way of a request, from TLS to etcd.
//
//	TLS -> filters -> authentication -> flow control -> authorization
//	    -> aggregator | kinds | custom resources | 404
//	    -> admission -> registry -> watch cache -> etcd
//
// One folder stands for each stage; this file joins them. The stores are there
// once and have two views: the public one, behind the port, shows the versions
// of the chosen release; the internal one shows every version to the server's
// own clients (admission, flow control, the aggregator) in process.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"

	"svc.dev/svc/apis"
	"svc.dev/svc/apis/metrics"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apiserver/agents"
	"svc.dev/svc/apiserver/aggregation"
	"svc.dev/svc/apiserver/authentication"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/openapi"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/reservation"
	"svc.dev/svc/apiserver/reviews"
	"svc.dev/svc/apiserver/serviceaccount"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/footprint"

	definitions "svc.dev/svc/apis/openapi"
)

// groupDomain is the domain of the API groups (document 1): standalone, the
// service speaks Kubernetes' own.
const groupDomain = "k8s.io"

// Server is an API server that has been put together and listens.
type Server struct {
	aggregator runnable
	handler    http.Handler
	backend    *storage.Backend
	ending     *ending
	requests   *inprocess.Stoppable
	delay      time.Duration // of the shutdown
	address    string
}

type runnable interface {
	Run(ctx context.Context) error
}

// builder holds what New puts together on its way.
type builder struct {
	options      *options.Options
	kinds        []*resource.Kind
	served       release.Served
	scheme       *runtime.Scheme
	backend      *storage.Backend
	reservations *reservation.Store
	env          *resource.Env
	registry     *registry.Registry
	docs         *openapi.Documents
	internal     *internalView
	// requests are those of the server's own clients.
	requests  *inprocess.Stoppable
	loopback  *rest.Config
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	services  webhook.ServiceResolver
	// discovered is closed when everything that is served has its routes;
	// before, an unknown path is answered with 503 rather than 404.
	discovered     chan struct{}
	ending         *ending
	identity       authentication.Config
	keys           *serviceaccount.Keys
	authenticators authentication.Authenticators
	authorizer     authorization.Authorizer
	roles          *authorization.Roles // nil without the mode RBAC
}

// New puts the server together and opens its port. It does not wait for etcd.
// ctx is that of the server's life, as Run's. Errors name the flag that would
// mend them.
func New(ctx context.Context, o *options.Options) (*Server, error) {
	b := &builder{options: o, env: &resource.Env{Clock: clock.RealClock{}}, discovered: make(chan struct{}), ending: newEnding()}
	if err := b.makeStorage(); err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	server, err := b.makeServers(ctx)
	if err != nil {
		return nil, errors.Join(err, b.abandon())
	}
	return server, nil
}

// abandon closes what a failed New has opened.
func (b *builder) abandon() error {
	var errs []error
	if b.registry != nil {
		b.registry.Destroy()
	}
	if b.backend != nil {
		errs = append(errs, b.backend.Close())
	}
	if listener := b.options.SecureServing.Listener; listener != nil {
		errs = append(errs, listener.Close())
	}
	return errors.Join(errs...)
}

// makeStorage makes the kinds' storage, and who may use it.
func (b *builder) makeStorage() error {
	var err error
	if b.identity, err = b.identityConfig(); err != nil {
		return err
	}
	if err := b.serviceAccounts(); err != nil {
		return err
	}
	if b.authenticators, err = authentication.New(b.identity); err != nil {
		return err
	}
	if b.authorizer, b.roles, err = authorization.New(b.options.Authorization.Modes, b.options.Authorization.Components); err != nil {
		return err
	}
	b.kinds = apis.Kinds()
	for _, d := range reviews.Kinds(b.authorizer, b.authorizer, b.authenticators.Identified, b.identity.Audiences) {
		b.kinds = append(b.kinds, d.Kind())
	}
	if b.options.Agents.Metrics {
		for _, d := range metrics.Kinds() {
			b.kinds = append(b.kinds, d.Kind())
		}
	}
	if b.served, err = release.NewServed(b.options.Release, b.options.RuntimeConfig, b.kinds,
		apiextensionsv1.SchemeGroupVersion, apiregistrationv1.SchemeGroupVersion); err != nil {
		return err
	}
	if b.scheme, err = apis.NewScheme(b.kinds); err != nil {
		return err
	}
	if b.backend, err = storage.Open(b.options.Etcd); err != nil {
		return err
	}
	cidrs, err := b.options.Network.ServiceCIDRs()
	if err != nil {
		return err
	}
	ports := b.options.Network.ServiceNodePortRange
	b.reservations = reservation.New(b.backend.Client().KV, b.backend.Prefix(), clock.RealClock{})
	b.env.Etcd = b.backend.Check
	b.env.Reservations = b.reservations.Pool
	b.env.ServiceCIDRs = cidrs
	b.env.EventTTL = b.options.EventTTL
	b.env.AllowPrivileged = b.options.AllowPrivileged
	b.env.NodePorts = resource.PortRange{From: int32(ports.Base), To: int32(ports.Base + ports.Size - 1)}
	if b.env.Agents, err = agents.New(b.options.Agents); err != nil {
		return fmt.Errorf("--svclet-certificate-authority, --svclet-client-certificate: %w", err)
	}
	codec, versioner := storage.KindCodec(b.scheme, b.kinds)
	b.registry, err = registry.New(b.kinds, b.scheme, b.backend.RESTOptions(codec, versioner), b.env)
	return err
}

// makeServers makes the views and the chain of servers.
func (b *builder) makeServers(ctx context.Context) (*Server, error) {
	b.docs = openapi.New("svc", b.documentsVersion(), definitions.Definitions, func() *runtime.Scheme {
		return apis.NewExternalScheme(b.kinds)
	})
	if err := b.makeInternal(); err != nil {
		return nil, fmt.Errorf("internal view: %w", err)
	}
	config, err := b.genericConfig()
	if err != nil {
		return nil, err
	}
	if err := b.admission(config); err != nil {
		return nil, err
	}
	crds, err := b.customResources(config)
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	own, groups, err := b.own(config, noProtobuf{crds.GenericAPIServer, config.Serializer})
	if err != nil {
		return nil, fmt.Errorf("resources: %w", err)
	}
	aggregator, err := b.aggregator(config, own, crds, groups)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	if err := b.addBootstrap(config, aggregator.GenericAPIServer); err != nil {
		return nil, err
	}
	if gatherer := b.options.Metrics; gatherer != nil {
		installMetrics(aggregator.GenericAPIServer.Handler.NonGoRestfulMux, gatherer, b.options.Features.Profiling)
	}
	prepared, err := aggregator.PrepareRun()
	if err != nil {
		return nil, err
	}
	go func() {
		for _, known := range aggregator.GenericAPIServer.MuxAndDiscoveryCompleteSignals() {
			select {
			case <-known:
			case <-ctx.Done():
				return
			}
		}
		close(b.discovered)
	}()
	b.internal.complete(aggregator.GenericAPIServer.UnprotectedHandler())
	return &Server{
		aggregator: prepared,
		handler:    aggregator.GenericAPIServer.UnprotectedHandler(),
		backend:    b.backend,
		ending:     b.ending,
		requests:   b.requests,
		delay:      b.options.Requests.ShutdownDelay,
		address:    config.SecureServing.Listener.Addr().String(),
	}, nil
}

// makeInternal makes the internal view and the clients and informers on it.
func (b *builder) makeInternal() error {
	b.internal = newInternalView(b.scheme, b.registry, b.authorizer)
	b.requests = inprocess.NewStoppable(b.internal)
	b.loopback = inprocess.ClientConfig(b.requests)
	typed := rest.CopyConfig(b.loopback)
	typed.WarningHandler = rest.NoWarnings{}
	typed.ContentType = runtime.ContentTypeProtobuf
	typed.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	var err error
	if b.client, err = kubernetes.NewForConfig(typed); err != nil {
		return err
	}
	b.informers = informers.NewSharedInformerFactory(b.client, 0)
	if b.roles != nil {
		b.roles.Follow(b.informers.Rbac().V1())
	}
	b.services, err = b.serviceResolver()
	return err
}

// serviceResolver finds extension servers and webhooks at an endpoint of their
// service, unless told that cluster IP addresses work on this machine.
func (b *builder) serviceResolver() (webhook.ServiceResolver, error) {
	services := aggregation.Services{Lister: b.informers.Core().V1().Services().Lister()}
	if b.options.Network.AggregatorRouting {
		var err error
		if services.Endpoints, err = proxy.NewEndpointSliceIndexerGetter(b.informers.Discovery().V1().EndpointSlices()); err != nil {
			return nil, err
		}
	}
	return services, nil
}

// Address is the host and port that the server listens on.
func (s *Server) Address() string { return s.address }

// Run serves until ctx is done and everything has drained. onReady, if not
// nil, is called once, when /readyz passes for the first time.
func (s *Server) Run(ctx context.Context, onReady func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var besides sync.WaitGroup
	if onReady != nil {
		besides.Go(func() {
			if s.waitReady(ctx) == nil {
				onReady()
			}
		})
	}
	besides.Go(func() { footprint.Settle(ctx) })
	besides.Go(func() { footprint.Pace(ctx) })
	s.ending.follow(ctx, s.delay)
	err := s.aggregator.Run(ctx)
	cancel()
	besides.Wait()
	s.requests.Stop()
	return errors.Join(err, s.backend.Close())
}

// waitReady returns when /readyz passes, or an error when ctx is done before.
// It looks often at first, as a start takes a fraction of a second.
func (s *Server) waitReady(ctx context.Context) error {
	transport := inprocess.Transport{Handler: inprocess.Chain(s.handler)}
	delay := wait.Backoff{Duration: 2 * time.Millisecond, Factor: 1.2, Steps: 24, Cap: 100 * time.Millisecond}.DelayFunc()
	return delay.Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://in-process/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return false, err // only the end of ctx is one
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
}

// noFieldManagement is the type converter of the internal view: what the
// server itself writes needs no schema to be tracked.
func noFieldManagement(...string) managedfields.TypeConverter {
	return managedfields.NewDeducedTypeConverter()
}
