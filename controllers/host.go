package controllers

import (
	"context"
	"fmt"
	"net"
	"net/http"
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
)

// host is what the controllers of one term share: connections, caches, clients.
type host struct {
	api         *rest.Config
	http        *http.Client
	scheme      *runtime.Scheme
	manager     manager.Manager
	discovery   *resources.Discovery
	broadcaster record.EventBroadcaster
	indexes     *controller.Indexes
}

func newHost(ctx context.Context, m *Manager, term *election.Term, broadcaster record.EventBroadcaster) (*host, error) {
	h := &host{api: rest.CopyConfig(m.api), scheme: m.scheme, broadcaster: broadcaster}
	h.api.Wrap(term.Guard)
	h.api.Dial = doubting(term, h.api.Dial)
	var err error
	if h.http, err = rest.HTTPClientFor(h.api); err != nil {
		return nil, err
	}
	finder, err := discovery.NewDiscoveryClientForConfigAndClient(h.api, h.http)
	if err != nil {
		return nil, err
	}
	h.discovery = resources.New(finder)
	if h.manager, err = manager.New(h.api, h.managerOptions(ctx, m.picked)); err != nil {
		return nil, err
	}
	h.indexes = controller.NewIndexes(h.manager.GetFieldIndexer())
	return h, nil
}

// gracefulStop bounds how long reconcilers may take to end. It leaves the API
// server time to stop after them.
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
		BaseContext: func() context.Context { return ctx },
		Cache: cache.Options{
			HTTPClient:               h.http,
			DefaultTransform:         cache.TransformStripManagedFields(),
			DefaultWatchErrorHandler: reads.failed,
			NewInformer:              newInformer,
		},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(gracefulStop),
		Controller: config.Controller{
			// The manager of a later term has the same controllers.
			SkipNameValidation: ptr.To(true),
			// A kind that cannot be read stops its own controllers only.
			CacheSyncTimeout: forever,
		},
	}
}

// doubting casts doubt on the lease whenever a connection is made: what answers
// may be an API server that was restarted, with an older state perhaps.
func doubting(term *election.Term, dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err == nil {
			term.Doubt()
		}
		return conn, err
	}
}

// run runs the controllers until ctx is done. It calls working when all those
// have begun whose kinds are served.
func (h *host) run(ctx context.Context, picked []controller.Controller, working func()) error {
	// Set up within the running manager: what is set up before its start has to
	// have its caches filled before anything begins.
	if err := h.manager.Add(manager.RunnableFunc(func(ctx context.Context) error { return h.begin(ctx, picked, working) })); err != nil {
		return err
	}
	return h.manager.Start(ctx)
}

// close ends the connections.
func (h *host) close() { utilnet.CloseIdleConnectionsFor(h.http.Transport) }

// How often it is looked again for kinds that are not served, and for an API
// server that does not answer.
const (
	missingPause = 10 * time.Second
	awayPause    = time.Second
)

// begin sets up every controller as soon as all the kinds are served that it
// reads.
func (h *host) begin(ctx context.Context, waiting []controller.Controller, working func()) error {
	logger := klog.FromContext(ctx)
	told := map[string]bool{}
	for first := true; ; {
		var err error
		if waiting, err = h.setUpServed(ctx, waiting, told); err != nil {
			return err
		}
		pause := missingPause
		if slices.ContainsFunc(waiting, func(c controller.Controller) bool { return !told[c.Name] }) {
			pause = awayPause
		} else if first {
			first = false
			working()
		}
		if len(waiting) == 0 {
			return nil
		}
		logger.V(4).Info("Some controllers wait", "controllers", names(waiting))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// setUpServed sets up those controllers whose kinds are served. It returns the
// others, and tells of each once that it does not run.
func (h *host) setUpServed(ctx context.Context, all []controller.Controller, told map[string]bool) (waiting []controller.Controller, err error) {
	logger := klog.FromContext(ctx)
	for _, c := range all {
		missing, err := h.missing(c)
		switch {
		case err != nil:
			logger.V(2).Info("It is not known yet what the API server serves", "controller", c.Name, "reason", err.Error())
			waiting = append(waiting, c)
		case len(missing) > 0:
			if !told[c.Name] {
				told[c.Name] = true
				logger.Error(nil, "The controller does not run: the API server does not serve what it needs", "controller", c.Name, "kinds", missing)
			}
			waiting = append(waiting, c)
		default:
			if err := h.setUp(ctx, c); err != nil {
				return nil, fmt.Errorf("controller %s: %w", c.Name, err)
			}
			if told[c.Name] {
				logger.Info("The controller runs now", "controller", c.Name)
			}
		}
	}
	return waiting, nil
}

// missing are the kinds that the controller reads and the server does not serve.
func (h *host) missing(c controller.Controller) ([]string, error) {
	var missing []string
	for _, obj := range c.Reads {
		gvk, err := apiutil.GVKForObject(obj, h.scheme)
		if err != nil {
			return nil, err
		}
		_, err = h.manager.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			missing = append(missing, gvk.GroupKind().String())
		} else if err != nil {
			return nil, err
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// setUp adds the controller to the manager.
func (h *host) setUp(ctx context.Context, c controller.Controller) error {
	named := *h.http
	named.Transport = agent{userAgent + "/" + c.Name, h.http.Transport}
	live := client.Options{HTTPClient: &named, Scheme: h.scheme, Mapper: h.manager.GetRESTMapper()}
	cached := live
	cached.Cache = &client.CacheOptions{Reader: h.manager.GetCache(), EnableReadYourWritesConsistency: ptr.To(true)}
	env := &controller.Env{
		Manager:     h.manager,
		Discovery:   h.discovery,
		Clock:       clock.RealClock{},
		Broadcaster: h.broadcaster,
		Indexes:     h.indexes,
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

// agent tells the API server, for its audit log, which controller asks.
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
