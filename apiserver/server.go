// Package apiserver is the API server. A request passes these stages, each of
// which is a folder:
//
//	TLS -> filters -> authentication -> flow control -> authorization
//	    -> aggregator | kinds | custom resources | 404
//	    -> admission -> registry -> watch cache -> etcd
//
// This file makes the stages from the last to the first: identity, stores,
// clients, chain. The stores exist once and have two views: the public one,
// behind the port, serves the versions of the chosen release; the internal one
// serves every version to the server's own clients (admission, flow control,
// the aggregator) in process.
package apiserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/encryption"
	"svc.dev/svc/apiserver/established"
	"svc.dev/svc/apiserver/filters/drain"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/inprocess"
	"svc.dev/svc/apiserver/itemcache"
	"svc.dev/svc/apiserver/options"
	"svc.dev/svc/apiserver/registry"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/apiserver/storage"
	"svc.dev/svc/internal/celquantity"
	"svc.dev/svc/internal/footprint"
	"svc.dev/svc/internal/releases"
)

// kubernetesDomain is the domain of the API groups (document 1) of a standalone server:
// Kubernetes' own.
const kubernetesDomain = "k8s.io"

// Server is an API server whose port is open.
type Server struct {
	chain    runnable
	handler  http.Handler
	identity *identity
	hosted   *hosted // nil if it is standalone
	backend  *storage.Backend
	servers  *established.Servers
	items    *itemcache.Cache
	recorded *recordedRelease
	// objectCounts is what flow control estimates the cost of lists from.
	objectCounts flowcontrolrequest.StorageObjectCountTracker
	encryption   *encryption.Encryption
	requests     *inprocess.Stoppable // of the server's own clients
	drain        *drain.Drain
	discovery    discoverySignals
	bootstrap    []*bootstrapStep
	// informers have to sync before the post-start hooks, which start all informers.
	informers []informerFactory
	clock     clock.WithTicker
	delay     time.Duration // of the shutdown
	listener  net.Listener
	address   string
	id        string // in metrics
	// reloaded returns the errors of files that are read again when they change.
	reloaded func() []error
}

type runnable interface {
	Run(ctx context.Context) error
}

// New makes the server and opens its port. It does not wait for etcd. Errors
// name the flag that the operator has to correct.
func New(o *options.Options) (*Server, error) {
	server, err := newServer(o, clock.RealClock{})
	if listener := o.SecureServing.Listener; err != nil && listener != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, err
}

func newServer(o *options.Options, clock clock.WithTicker) (*Server, error) {
	if err := release.SetExpressions(o.Release); err != nil {
		return nil, err
	}
	if err := celquantity.Limit(); err != nil {
		return nil, err
	}
	if err := gates.SetLibraries(releases.Release(o.Release.Minor)); err != nil {
		return nil, err
	}
	kinds := registry.New()
	behind, err := newHosted(o, clock)
	if err != nil {
		return nil, err
	}
	id, err := newIdentity(o, behind, kinds, clock)
	if err != nil {
		return nil, err
	}
	l := layers{utilfeature.DefaultFeatureGate}
	serverID := string(uuid.NewUUID())
	s, err := newStores(o, id, kinds, l, serverID, clock)
	if err != nil {
		id.close()
		return nil, err
	}
	c, err := newClients(o, id, s, behind, l)
	if err != nil {
		id.close()
		return nil, errors.Join(err, s.close())
	}
	a, err := newAddresses(s, c, behind)
	if err != nil {
		id.close()
		return nil, errors.Join(err, s.close())
	}
	server, err := newChain(o, id, s, c, a, behind, l, clock).assemble()
	if err != nil {
		id.close()
		return nil, errors.Join(err, s.close())
	}
	server.id, server.hosted = serverID, behind
	server.reloaded = o.ValidateReloaded
	return server, nil
}

// Address returns the host and port that the server listens on.
func (s *Server) Address() string { return s.address }

// Run serves until ctx is done and all requests have ended. onReady, if not nil,
// is called once, when /readyz passes for the first time.
func (s *Server) Run(ctx context.Context, onReady func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan struct{})
	var background sync.WaitGroup
	if onReady != nil {
		background.Go(func() {
			if s.waitReady(ctx) == nil {
				onReady()
			}
		})
	}
	background.Go(func() { footprint.Run(ctx) })
	background.Go(func() { footprint.Idle(ctx) })
	background.Go(func() { s.discovery.wait(ctx) })
	background.Go(func() { s.drain.Run(ctx, stopped, s.delay, s.clock) })
	for _, step := range s.bootstrap {
		background.Go(func() { step.keep(stopped) })
	}
	// A server that stops answers requests until the last one has ended.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	background.Go(func() { s.identity.run(serving, s.id, s.clock) })
	background.Go(func() { s.servers.Run(serving, s.clock) })
	background.Go(func() { s.hosted.run(serving) })
	background.Go(func() { s.encryption.Run(serving) })
	background.Go(func() { s.backend.CountObjects(serving, s.objectCounts.Set) })
	background.Go(func() { s.items.Run(serving, s.clock) })
	background.Go(func() { s.recorded.check(ctx, cancel) })
	background.Go(func() { reportBadFiles(ctx, s.reloaded, s.clock) })
	s.syncInformers(ctx, serving)
	err := s.serve(ctx)
	sendPending(s.listener)
	cancel()
	stop()
	close(stopped)
	background.Wait()
	s.requests.Stop()
	s.identity.close()
	s.encryption.Close()
	return errors.Join(s.recorded.refused, err, s.backend.Close())
}

// serve serves until ctx is done. A release that must not serve what is stored does not
// begin to, unless etcd answers later than syncTimeout; then it writes nothing.
func (s *Server) serve(ctx context.Context) error {
	s.recorded.await(ctx, s.clock.After(syncTimeout))
	if ctx.Err() != nil {
		return s.listener.Close()
	}
	return s.chain.Run(ctx)
}

// informerFactory has informers of the server itself, on the internal view.
type informerFactory interface {
	Start(stop <-chan struct{})
	WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool
}

// syncTimeout bounds how long a start waits for informers, for which etcd has to answer.
const syncTimeout = time.Second

// syncInformers starts the informers and waits until they have synced, or for
// syncTimeout. The post-start hooks start them, too, but many then poll every 100 ms
// until they have synced. They run until serving ends.
func (s *Server) syncInformers(ctx, serving context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, factory := range s.informers {
		factory.Start(serving.Done())
	}
	for _, factory := range s.informers {
		factory.WaitForCacheSync(ctx.Done())
	}
}
