package controllers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/election"
	"svc.dev/svc/controllers/events"
)

// Config is what a Manager needs.
type Config struct {
	Options *Options
	// API is how the API server is reached, and as whom.
	API *rest.Config
	// Holder names this manager in the lease; see election.Elector.
	Holder string
	// Scheme says in which groups the API server has the kinds; nil means those
	// of Kubernetes.
	Scheme *runtime.Scheme
	// Working, if not nil, is called whenever the controllers have begun to work.
	Working func()
}

// userAgent is the first part of the managers' names in managed fields, and who
// says what concerns the manager itself.
const userAgent = "svc-controller-manager"

// restartPause is the time before the controllers start anew.
const restartPause = time.Second

// Manager runs the controllers that the options pick.
type Manager struct {
	api     *rest.Config
	holder  string
	working func()
	picked  []controller.Controller
	scheme  *runtime.Scheme
	// election says where the lease is, even if none is taken.
	election Election
	elector  *election.Elector // nil without an election
	// live reads and writes past all caches, whoever holds the lease.
	live client.WithWatch
}

// New puts a manager together. It does not ask the API server for anything.
func New(c Config) (*Manager, error) {
	picked, err := c.Options.Picked()
	if err != nil {
		return nil, err
	}
	m := &Manager{api: rest.CopyConfig(c.API), holder: c.Holder, working: c.Working, picked: picked, election: c.Options.Election, scheme: c.Scheme}
	if m.scheme == nil {
		m.scheme = apis.NewExternalScheme(apis.Kinds())
	}
	m.api.QPS = -1 // the API server's flow control decides
	m.api.UserAgent = userAgent
	m.api.WarningHandlerWithContext = rest.NoWarnings{}
	e := c.Options.Election
	own := rest.CopyConfig(m.api)
	own.Timeout = e.RenewDeadline / 2
	if m.live, err = client.NewWithWatch(own, client.Options{Scheme: m.scheme}); err != nil {
		return nil, err
	}
	if e.Enabled {
		m.elector = &election.Elector{
			Client:        m.live,
			Key:           client.ObjectKey{Namespace: e.Namespace, Name: e.Name},
			Holder:        c.Holder,
			LeaseDuration: e.LeaseDuration,
			RenewDeadline: e.RenewDeadline,
			RetryPeriod:   e.RetryPeriod,
			Clock:         clock.RealClock{},
		}
	}
	return m, nil
}

// HealthChecks are those of the manager, named as kube-controller-manager's.
func (m *Manager) HealthChecks() []healthz.HealthChecker {
	if m.elector == nil {
		return nil
	}
	return []healthz.HealthChecker{m.elector}
}

// Run runs the controllers until ctx is done, and then stops them in order. A
// manager that loses the lease, or whose API server goes back in time, stops
// its controllers and starts anew with empty caches. It waits for an API server
// that is away.
func (m *Manager) Run(ctx context.Context) error {
	if len(m.picked) == 0 {
		<-ctx.Done()
		return nil
	}
	broadcaster := events.Start(ctx, m.live)
	if m.elector == nil {
		err := m.work(ctx, nil, broadcaster)
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	m.elector.Events = broadcaster.NewRecorder(m.scheme, corev1.EventSource{Component: userAgent})
	for {
		err := m.elector.Lead(ctx, func(ctx context.Context, term *election.Term) error { return m.work(ctx, term, broadcaster) })
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, election.ErrLost), errors.Is(err, election.ErrWentBack):
			klog.FromContext(ctx).Info("The controllers start anew")
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

// work runs the controllers for a term. Whatever outlives a graceful stop ends
// with it, or cannot write any more.
func (m *Manager) work(ctx context.Context, term *election.Term, broadcaster record.EventBroadcaster) error {
	h, err := newHost(ctx, m, term, broadcaster)
	if err != nil {
		return err
	}
	defer h.close()
	return h.run(ctx, m.picked, func() {
		klog.FromContext(ctx).Info("The controllers work", "holder", m.holder)
		if m.working != nil {
			m.working()
		}
	})
}
