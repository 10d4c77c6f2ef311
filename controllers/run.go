package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/election"
	"svc.dev/svc/controllers/events"
	"svc.dev/svc/internal/celquantity"
	"svc.dev/svc/internal/clientcert"
	"svc.dev/svc/internal/fleetaddress"
)

// Config configures a Manager.
type Config struct {
	Options *Options
	// API is the connection to the API server, with the user's credentials.
	API *rest.Config
	// Holder is the holder identity of this manager; see election.Elector.
	Holder string
	// Scheme has the API groups of the kinds; nil is Kubernetes' own groups.
	Scheme *runtime.Scheme
	// Working, if not nil, is called whenever the controllers have started.
	Working func()
	// Clock is the real clock if nil.
	Clock clock.WithTicker
}

// userAgent is the first part of the controllers' user agents, and the source of
// the manager's own events.
const userAgent = "svc-controller-manager"

// restartDelay is the time before the controllers are restarted.
const restartDelay = time.Second

// Manager runs the controllers that the options pick.
type Manager struct {
	api     *rest.Config
	holder  string
	working func()
	picked  []controller.Controller
	scheme  *runtime.Scheme
	rootCA  []byte
	gate    func(name string) (on, set bool)
	// election has the key of the lease, also if leader election is disabled.
	election Election
	elector  *election.Elector // nil if leader election is disabled
	clock    clock.WithTicker
	// live reads and writes without a cache, also while this manager is not the
	// leader: the lease, and the events about it.
	live client.WithWatch
}

// New returns a manager. It sends no request to the API server.
func New(c Config) (*Manager, error) {
	if err := celquantity.Limit(); err != nil { // of the selectors of devices, which users write
		return nil, err
	}
	picked, err := c.Options.Picked(c.API.Host)
	if err != nil {
		return nil, err
	}
	m := &Manager{api: rest.CopyConfig(c.API), holder: c.Holder, working: c.Working, picked: picked, gate: c.Options.Gate, election: c.Options.Election, scheme: c.Scheme, clock: c.Clock}
	if m.rootCA, err = c.Options.rootCA(c.API); err != nil {
		return nil, err
	}
	if m.scheme == nil {
		m.scheme = apis.ExternalScheme()
	}
	if m.clock == nil {
		m.clock = clock.RealClock{}
	}
	m.api.QPS = -1 // the API server's flow control decides
	m.api.UserAgent = userAgent
	m.api.WarningHandlerWithContext = rest.NoWarnings{}
	if m.live, err = m.newLive(); err != nil {
		return nil, err
	}
	if e := m.election; e.Enabled {
		m.elector = &election.Elector{
			Client:        m.live,
			Key:           client.ObjectKey{Namespace: e.Namespace, Name: e.Name},
			Holder:        c.Holder,
			LeaseDuration: e.LeaseDuration,
			RenewDeadline: e.RenewDeadline,
			RetryPeriod:   e.RetryPeriod,
			Clock:         m.clock,
		}
	}
	return m, nil
}

// newLive returns the client of the lease and of the events about it.
func (m *Manager) newLive() (client.WithWatch, error) {
	own, err := clientcert.Renewed(m.api)
	if err != nil {
		return nil, err
	}
	own = rest.CopyConfig(own)
	own.Timeout = m.requestTimeout()
	if m.election.AtHost {
		host, _, ok := fleetaddress.Split(own.Host)
		if !ok {
			return nil, fmt.Errorf("--%s: the server %s is not the own address of a fleet, and so has no host; leave the flag out", atHostFlag, own.Host)
		}
		own.Host = host
	}
	return client.NewWithWatch(own, client.Options{Scheme: m.scheme})
}

// requestTimeout is the timeout of requests for the lease and for events.
func (m *Manager) requestTimeout() time.Duration { return m.election.RenewDeadline / 2 }

// HealthChecks returns the manager's health checks, which have the names of
// kube-controller-manager's.
func (m *Manager) HealthChecks() []healthz.HealthChecker {
	if m.elector == nil {
		return nil
	}
	return []healthz.HealthChecker{m.elector}
}

// Run runs the controllers until ctx is done, and waits until they have stopped.
// After the lease is lost, or the API server was restored from an older snapshot,
// it restarts the controllers with empty caches. It retries while the API server
// is not available.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.picked) == 0 {
		<-ctx.Done()
		return nil
	}
	if m.elector == nil {
		err := m.work(ctx, nil)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	m.elector.Events = events.Start(ctx, m.live).NewRecorder(m.scheme, corev1.EventSource{Component: userAgent})
	for {
		err := m.elector.Lead(ctx, m.work)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, election.ErrLost), errors.Is(err, election.ErrWentBack):
			klog.FromContext(ctx).Info("Restarting controllers")
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.clock.After(wait.Jitter(restartDelay, 0.5)):
		}
	}
}

// work runs the controllers for a term. A controller that does not stop in time
// cannot write after the term.
func (m *Manager) work(ctx context.Context, term *election.Term) error {
	h, err := newHost(ctx, m, term)
	if err != nil {
		return err
	}
	defer h.close()
	return h.run(ctx, m.picked, func() {
		klog.FromContext(ctx).Info("Started controllers", "holder", m.holder)
		if m.working != nil {
			m.working()
		}
	})
}
