package apiserver

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/bootstrap"
	"svc.dev/svc/apiserver/inprocess"
)

const (
	// servicePort is the port of the Service kubernetes.
	servicePort = 443
	// repairInterval is how often reservations are compared with the objects.
	repairInterval = 3 * time.Minute
)

// addBootstrap adds a post-start hook for each step, which creates an object that
// every cluster needs. The server is ready when each step has succeeded once, or when etcd
// is full: the steps then go on until they succeed.
func (c *chain) addBootstrap(config *genericapiserver.RecommendedConfig, server *genericapiserver.GenericAPIServer) ([]*bootstrapStep, error) {
	_, port, err := config.SecureServing.HostPort()
	if err != nil {
		return nil, err
	}
	advertise, _ := netip.AddrFromSlice(config.PublicAddress)
	steps := bootstrap.Steps(bootstrap.Config{
		Client: c.clients.typed,
		Clock:  c.clock,
		Service: bootstrap.Service{
			ClusterIP: bootstrap.FirstAddress(c.stores.env.ServiceCIDRs[0]), Port: servicePort, TargetPort: int32(port),
		},
		ServiceCIDR:    c.addresses.defaultServiceCIDR(c),
		Advertise:      netip.AddrPortFrom(advertise.Unmap(), uint16(port)),
		Shared:         c.options.SharedStorage,
		Hosted:         c.hosted != nil,
		Authentication: c.publishedAuthentication(),
	})
	steps = append(steps, bootstrap.Step{Name: "repair-claims", Interval: repairInterval, Ensure: c.repairReservations})
	if c.identity.authorizers.Roles != nil {
		creator := c.stores.registry.NewCreator(c.stores.scheme)
		steps = append(steps, bootstrap.RolesStep(c.clients.typed, func(ctx context.Context, obj runtime.Object) error {
			return creator.Create(ctx, inprocess.UserAgent, obj)
		}, c.identity.authorizers.Roles.AwaitRoles, c.options.Release, c.stores.gate))
	}
	var added []*bootstrapStep
	for _, step := range steps {
		s := newBootstrapStep(step, c.stores.recorded.allows, c.stores.backend.Full, c.clock)
		if err := server.AddPostStartHook(step.Name, s.hook); err != nil {
			return nil, err
		}
		if step.Stop != nil {
			if err := server.AddPreShutdownHook("stop-"+step.Name, s.stop); err != nil {
				return nil, err
			}
		}
		added = append(added, s)
	}
	return added, nil
}

// publishedAuthentication returns what extension servers read of the
// authentication's configuration.
func (c *chain) publishedAuthentication() bootstrap.Authentication {
	config := c.identity.authentication
	published := bootstrap.Authentication{ClientCA: config.ClientCA}
	if h := c.options.Authentication.RequestHeader; config.RequestHeader != nil {
		published.RequestHeaderCA = config.RequestHeader.CAContentProvider
		published.UsernameHeaders, published.UIDHeaders, published.GroupHeaders = h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders
		published.ExtraHeaderPrefixes, published.AllowedNames = h.ExtraHeaderPrefixes, h.AllowedNames
	}
	return published
}

// bootstrapStep runs a step once in a post-start hook, and then from time to
// time.
type bootstrapStep struct {
	bootstrap.Step
	clock clock.Clock
	// allows returns when the step may run, or false when the channel is closed before.
	allows func(stopped <-chan struct{}) bool
	// full reports whether etcd refuses writes because it has reached its quota.
	full func() bool
	// succeeded gets the hook's context, which is done when the server has stopped
	// answering requests.
	succeeded chan context.Context
	// stopping is done, by end, when the server begins to stop.
	stopping context.Context
	end      context.CancelFunc
	// keeping is locked while the step is repeated, and stopped after that.
	keeping sync.Mutex
}

func newBootstrapStep(step bootstrap.Step, allows func(stopped <-chan struct{}) bool, full func() bool, clock clock.Clock) *bootstrapStep {
	s := &bootstrapStep{Step: step, allows: allows, full: full, clock: clock, succeeded: make(chan context.Context, 1)}
	s.stopping, s.end = context.WithCancel(context.Background())
	return s
}

// hook returns when the step has succeeded, when etcd is full, or when the server stops. At a
// full etcd the step goes on.
func (s *bootstrapStep) hook(hook genericapiserver.PostStartHookContext) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s.allows(hook.Done()) && s.First(hook, s.clock) == nil {
			s.succeeded <- hook
		}
	}()
	for {
		select {
		case <-ended:
			return nil
		case <-s.clock.After(checkInterval):
			if s.full() {
				return nil
			}
		}
	}
}

// keep repeats the step, if it has an interval, from its first success until the
// server stops.
func (s *bootstrapStep) keep(stopped <-chan struct{}) {
	if s.Interval == 0 {
		return
	}
	select {
	case hook := <-s.succeeded:
		s.keeping.Lock()
		defer s.keeping.Unlock()
		ctx, cancel := context.WithCancel(hook)
		defer cancel()
		defer context.AfterFunc(s.stopping, cancel)()
		s.Keep(ctx, s.clock)
	case <-stopped:
	}
}

// stop is a pre-shutdown hook: it ends the repetition, and returns when the step is stopped. The
// server answers requests until then, and for the delay of its shutdown, so that clients go to
// other servers before its port is closed.
func (s *bootstrapStep) stop() error {
	s.end()
	s.keeping.Lock()
	defer s.keeping.Unlock()
	return nil
}
