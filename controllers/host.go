package controllers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"svc.dev/svc/controllers/controller"
	resources "svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/election"
	"svc.dev/svc/controllers/events"
	"svc.dev/svc/internal/clientcert"
)

// host has what the controllers of one term share: connections, caches, clients.
type host struct {
	api        *rest.Config
	clock      clock.WithTicker
	http       *http.Client
	scheme     *runtime.Scheme
	rootCA     []byte
	gate       func(name string) (on, set bool)
	manager    manager.Manager
	discovery  *resources.Discovery
	broadcast  func() record.EventBroadcaster
	stopEvents context.CancelFunc
	indexes    *controller.Indexes
}

func newHost(ctx context.Context, m *Manager, term *election.Term) (*host, error) {
	h := &host{api: rest.CopyConfig(m.api), clock: m.clock, scheme: m.scheme, rootCA: m.rootCA, gate: m.gate}
	h.api.Wrap(term.Guard)
	h.api.Dial = renewOnConnect(term, h.api.Dial)
	var err error
	if h.api, err = clientcert.Renewed(h.api); err != nil {
		return nil, err
	}
	if h.http, err = rest.HTTPClientFor(h.api); err != nil {
		return nil, err
	}
	finder, err := discovery.NewDiscoveryClientForConfigAndClient(h.api, h.http)
	if err != nil {
		return nil, err
	}
	h.discovery = resources.New(finder, h.clock)
	if h.manager, err = manager.New(h.api, h.managerOptions(ctx, m.picked)); err != nil {
		return nil, err
	}
	h.indexes = controller.NewIndexes(h.manager.GetFieldIndexer())
	recording, err := h.eventClient(m.requestTimeout())
	if err != nil {
		return nil, err
	}
	// Reconcilers may still record events while they stop.
	ctx, h.stopEvents = context.WithCancel(context.WithoutCancel(ctx))
	h.broadcast = func() record.EventBroadcaster { return events.Start(ctx, recording) }
	return h, nil
}

// eventClient returns the client that writes the controllers' events. Like all clients
// of a host it is fenced: it writes nothing after the term.
func (h *host) eventClient(timeout time.Duration) (client.Client, error) {
	bounded := *h.http
	bounded.Timeout = timeout
	return client.New(h.api, client.Options{HTTPClient: &bounded, Scheme: h.scheme, Mapper: h.manager.GetRESTMapper()})
}

// gracefulStop bounds how long reconcilers may take to stop. It leaves time for the
// API server of the same process to stop after them.
const gracefulStop = 5 * time.Second

const forever = 365 * 24 * time.Hour

func (h *host) managerOptions(ctx context.Context, picked []controller.Controller) manager.Options {
	reads := readers(picked)
	return manager.Options{
		Scheme: h.scheme,
		Logger: klog.FromContext(ctx),
		MapperProvider: func(api *rest.Config, _ *http.Client) (meta.RESTMapper, error) {
			return apiutil.NewDynamicRESTMapper(api, h.http)
		},
		// The manager cancels the contexts of what it runs once its own is cancelled. If they
		// were cancelled before, while it starts, it would wait for its caches without end.
		BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
		Cache: cache.Options{
			HTTPClient:               h.http,
			DefaultTransform:         cache.TransformStripManagedFields(),
			DefaultWatchErrorHandler: reads.failed,
			NewInformer:              newInformer(selectors(picked)),
		},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(gracefulStop),
		Controller: config.Controller{
			// The manager of a later term has the same controllers.
			SkipNameValidation: ptr.To(true),
			// A kind that cannot be listed must not stop the controllers of other kinds.
			CacheSyncTimeout: forever,
		},
	}
}

// renewOnConnect requires a renewal of the lease after every new connection: the
// API server may have been restarted with an older state.
func renewOnConnect(term *election.Term, dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			term.RequireRenewal()
		}
		return conn, err
	}
}

// run runs the controllers until ctx is done. It calls working when all controllers
// whose kinds are served have been set up.
func (h *host) run(ctx context.Context, picked []controller.Controller, working func()) error {
	// Controllers are set up within the running manager. A manager that starts waits
	// for the caches of everything that was set up before.
	if err := h.manager.Add(manager.RunnableFunc(func(ctx context.Context) error { return h.begin(ctx, picked, working) })); err != nil {
		return err
	}
	return h.manager.Start(ctx)
}

// close stops recording events and closes the connections.
func (h *host) close() {
	h.stopEvents()
	utilnet.CloseIdleConnectionsFor(h.http.Transport)
}

// The pauses before discovery is retried: for kinds that are not served, for those of
// newer releases, which an API server has after an upgrade only, and after an error.
const (
	missingKindPause = 10 * time.Second
	newerKindPause   = 2 * time.Minute
	errorPause       = time.Second
)

// begin sets up every controller as soon as all kinds that it reads are served.
func (h *host) begin(ctx context.Context, waiting []controller.Controller, working func()) error {
	logger := klog.FromContext(ctx)
	reported := map[string]bool{}
	for first := true; ; {
		var err error
		if waiting, err = h.setUpServed(ctx, waiting, reported); err != nil {
			return err
		}
		pause := missingKindPause
		if !slices.ContainsFunc(waiting, func(c controller.Controller) bool { return !c.Newer }) {
			pause = newerKindPause
		}
		if slices.ContainsFunc(waiting, func(c controller.Controller) bool { return !reported[c.Name] }) {
			pause = errorPause
		} else if first {
			first = false
			working()
		}
		if len(waiting) == 0 {
			return nil
		}
		logger.V(4).Info("Controllers are waiting for kinds to be served", "controllers", names(waiting))
		select {
		case <-h.clock.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// setUpServed sets up those controllers whose kinds are served. It returns the
// others, and logs for each once that it is not started.
func (h *host) setUpServed(ctx context.Context, all []controller.Controller, reported map[string]bool) (waiting []controller.Controller, err error) {
	logger := klog.FromContext(ctx)
	for _, c := range all {
		missing, err := h.missing(c)
		if err == nil && len(c.ReleaseGates) > 0 {
			_, err = h.discovery.Release(ctx) // Env.On needs it
		}
		switch {
		case err != nil:
			logger.V(2).Info("Failed to discover what controller needs, will retry", "controller", c.Name, "reason", err.Error())
			waiting = append(waiting, c)
		case len(missing) > 0:
			if !reported[c.Name] && !c.Newer {
				logger.Error(nil, "Controller is not started, the API server does not serve all kinds that it reads", "controller", c.Name, "kinds", missing)
			}
			reported[c.Name] = true
			waiting = append(waiting, c)
		default:
			if err := h.setUp(ctx, c); err != nil {
				return nil, fmt.Errorf("controller %s: %w", c.Name, err)
			}
			if reported[c.Name] {
				logger.Info("Started controller, its kinds are served now", "controller", c.Name)
			}
		}
	}
	return waiting, nil
}

// missing returns the kinds that the controller needs and the API server does not
// serve.
func (h *host) missing(c controller.Controller) ([]string, error) {
	var missing []string
	for _, obj := range c.Reads {
		if isOptional(c, obj) {
			continue
		}
		gvk, err := apiutil.GVKForObject(obj, h.scheme)
		if err != nil {
			return nil, err
		}
		served, err := h.servedIn(obj, c.Older)
		if err != nil {
			return nil, err
		}
		if !served {
			missing = append(missing, gvk.GroupKind().String())
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// servedIn reports whether the API server serves the kind of an object in its version or
// in one of those of the older ones that are of the same kind.
func (h *host) servedIn(obj client.Object, older []client.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(obj, h.scheme)
	if err != nil {
		return false, err
	}
	for _, o := range append([]client.Object{obj}, older...) {
		of, err := apiutil.GVKForObject(o, h.scheme)
		if err != nil {
			return false, err
		}
		if of.GroupKind() != gvk.GroupKind() {
			continue
		}
		if served, err := h.served(o); served || err != nil {
			return served, err
		}
	}
	return false, nil
}

// isOptional reports whether the controller works without the kind of obj.
func isOptional(c controller.Controller, obj client.Object) bool {
	return slices.ContainsFunc(c.Optional, func(o client.Object) bool { return reflect.TypeOf(o) == reflect.TypeOf(obj) })
}

// served reports whether the API server serves the kind of an object.
func (h *host) served(obj client.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(obj, h.scheme)
	if err != nil {
		return false, err
	}
	_, err = h.manager.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// setUp adds the controller to the manager.
func (h *host) setUp(ctx context.Context, c controller.Controller) error {
	named := *h.http
	named.Transport = agent{userAgent + "/" + c.Name, h.http.Transport}
	live := client.Options{HTTPClient: &named, Scheme: h.scheme, Mapper: h.manager.GetRESTMapper()}
	cached := live
	cached.Cache = &client.CacheOptions{Reader: h.manager.GetCache(), EnableReadYourWritesConsistency: ptr.To(true)}
	env := &controller.Env{
		Manager:   h.manager,
		Discovery: h.discovery,
		Clock:     h.clock,
		Served:    h.served,
		Gate:      h.gate,
		RootCA:    h.rootCA,
		Broadcast: h.broadcast,
		Indexes:   h.indexes,
	}
	var err error
	if env.Client, err = client.New(h.api, cached); err != nil {
		return err
	}
	if env.Live, err = client.New(h.api, live); err != nil {
		return err
	}
	if env.Metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(h.api), &named); err != nil {
		return err
	}
	return c.Setup(ctx, env)
}

// agent sets the user agent of requests, by which the API server's audit log shows
// the controller.
type agent struct {
	name string
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a agent) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", a.name)
	return a.next.RoundTrip(r)
}
