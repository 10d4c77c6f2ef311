package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
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

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/controller"
	resources "svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/election"
	"svc.dev/svc/controllers/events"
)

// Config is what Run needs.
type Config struct {
	Options *Options
	// API is how the API server is reached, and as whom.
	API *rest.Config
	// Holder names this manager in the lease; see election.Lock.
	Holder string
}

// userAgent is the first part of the managers' names in managed fields.
const userAgent = "svc-controller-manager"

// restartPause is the time before the controllers start anew.
const restartPause = time.Second

// Run runs the controllers that the options pick until ctx is done, and then
// stops them in order. A manager that loses the lease, or whose API server goes
// back in time, stops its controllers and starts anew with empty caches. The
// API server must be reachable when Run begins; afterwards it may go and come
// back.
func Run(ctx context.Context, c Config) error {
	picked, err := c.Options.Picked()
	if err != nil {
		return err
	}
	if len(picked) == 0 {
		<-ctx.Done()
		return nil
	}
	for {
		err := runOnce(ctx, c, picked)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errLost), errors.Is(err, election.ErrWentBack):
			klog.FromContext(ctx).Error(err, "The controllers have stopped and start anew")
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Jitter(restartPause, 0.5)):
		}
	}
}

// errLost tells that another manager may be the leader now.
var errLost = errors.New("the lease could not be renewed in time")

// runOnce runs one manager to its end.
func runOnce(ctx context.Context, c Config, picked []controller.Controller) error {
	// Whatever outlives the manager's graceful stop ends with it.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	h, err := newHost(ctx, c, cancel)
	if err != nil {
		return err
	}
	for _, p := range picked {
		if err := h.add(ctx, p); err != nil {
			return err
		}
	}
	go func() {
		select {
		case <-h.manager.Elected():
			klog.FromContext(ctx).Info("The controllers work", "holder", c.Holder)
		case <-ctx.Done():
		}
	}()
	err = h.manager.Start(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, election.ErrWentBack) {
		return cause
	}
	if err != nil && c.Options.Election.Enabled && err.Error() == "leader election lost" {
		return errLost
	}
	return err
}

// host is a manager with what its controllers share.
type host struct {
	api         *rest.Config
	http        *http.Client
	scheme      *runtime.Scheme
	manager     manager.Manager
	metadata    metadata.Interface
	discovery   *resources.Discovery
	broadcaster record.EventBroadcaster
	indexes     *controller.Indexes

	setup sync.Mutex // one controller is set up at a time
}

func newHost(ctx context.Context, c Config, stop context.CancelCauseFunc) (*host, error) {
	h := &host{api: rest.CopyConfig(c.API), scheme: apis.NewExternalScheme(apis.Kinds())}
	h.api.QPS = -1 // the API server's flow control decides
	h.api.UserAgent = userAgent
	h.api.WarningHandlerWithContext = rest.NoWarnings{}
	var err error
	if h.http, err = rest.HTTPClientFor(h.api); err != nil {
		return nil, err
	}
	live, err := client.New(h.api, client.Options{HTTPClient: h.http, Scheme: h.scheme})
	if err != nil {
		return nil, err
	}
	h.broadcaster = events.Start(ctx, live)
	if h.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(h.api), h.http); err != nil {
		return nil, err
	}
	finder, err := discovery.NewDiscoveryClientForConfigAndClient(h.api, h.http)
	if err != nil {
		return nil, err
	}
	h.discovery = resources.New(finder)
	if h.manager, err = manager.New(h.api, h.managerOptions(ctx, c, live, stop)); err != nil {
		return nil, err
	}
	h.indexes = controller.NewIndexes(h.manager.GetFieldIndexer())
	return h, nil
}

func (h *host) managerOptions(ctx context.Context, c Config, live client.Client, stop context.CancelCauseFunc) manager.Options {
	e := c.Options.Election
	o := manager.Options{
		Scheme:                  h.scheme,
		Logger:                  klog.FromContext(ctx),
		BaseContext:             func() context.Context { return ctx },
		Cache:                   cache.Options{HTTPClient: h.http, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(gracefulStop),
		Controller: config.Controller{
			// A second manager of this process has the same controllers.
			SkipNameValidation: ptr.To(true),
			// A kind that cannot be read yet stops its own controllers only.
			CacheSyncTimeout: forever,
		},
	}
	if e.Enabled {
		o.LeaderElection = true
		o.LeaderElectionID = e.Name
		o.LeaderElectionNamespace = e.Namespace
		o.LeaderElectionReleaseOnCancel = true // all controllers have stopped by then
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &e.LeaseDuration, &e.RenewDeadline, &e.RetryPeriod
		o.LeaderElectionResourceLockInterface = &election.Lock{
			Client:   live,
			Key:      client.ObjectKey{Namespace: e.Namespace, Name: e.Name},
			Holder:   c.Holder,
			Events:   h.broadcaster.NewRecorder(h.scheme, eventSource()),
			WentBack: func(err error) { stop(err) },
		}
	}
	return o
}

// gracefulStop bounds how long reconcilers may take to end. It leaves the API
// server time to stop after them.
const gracefulStop = 5 * time.Second

const forever = 365 * 24 * time.Hour

// retryPeriod is how often a controller looks whether its kinds are served by
// now.
const retryPeriod = 10 * time.Second

// add sets the controller up, or waits with that, while the others run, until
// all the kinds that it reads are served.
func (h *host) add(ctx context.Context, c controller.Controller) error {
	missing, err := h.missing(c)
	if err != nil {
		return fmt.Errorf("controller %s: %w", c.Name, err)
	}
	if len(missing) == 0 {
		return h.setUp(ctx, c)
	}
	klog.FromContext(ctx).Error(nil, "The controller does not run: the API server does not serve what it needs", "controller", c.Name, "kinds", missing)
	return h.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		served := func(context.Context) (bool, error) {
			missing, err := h.missing(c)
			return err == nil && len(missing) == 0, nil
		}
		if err := wait.PollUntilContextCancel(ctx, retryPeriod, false, served); err != nil {
			return nil // the manager stops
		}
		klog.FromContext(ctx).Info("The controller runs now", "controller", c.Name)
		return h.setUp(ctx, c)
	}))
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
	h.setup.Lock()
	defer h.setup.Unlock()
	own, err := client.New(h.api, client.Options{
		HTTPClient: h.http,
		Scheme:     h.scheme,
		Mapper:     h.manager.GetRESTMapper(),
		Cache: &client.CacheOptions{
			Reader:                          h.manager.GetCache(),
			EnableReadYourWritesConsistency: ptr.To(true),
		},
	})
	if err != nil {
		return fmt.Errorf("controller %s: %w", c.Name, err)
	}
	env := &controller.Env{
		Manager:     h.manager,
		Client:      own,
		Live:        h.manager.GetAPIReader(),
		Metadata:    h.metadata,
		Discovery:   h.discovery,
		Clock:       clock.RealClock{},
		Broadcaster: h.broadcaster,
		Indexes:     h.indexes,
	}
	if err := c.Setup(ctx, env); err != nil {
		return fmt.Errorf("controller %s: %w", c.Name, err)
	}
	return nil
}
