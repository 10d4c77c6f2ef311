package servicehealth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/services"
)

// Options are what the servers are made with.
type Options struct {
	// Services are those of the API server.
	Services *services.Store
	// Node is the name of this node.
	Node string
	// Proxied reports whether the proxy has written its latest rules: a node that has
	// not gets no traffic.
	Proxied func() bool
	// Warn records a warning event about a service.
	Warn  func(service *corev1.Service, reason, message string)
	Clock clock.Clock
	// Listen is [net.Listen], unless it is set.
	Listen func(network, address string) (net.Listener, error)
}

const (
	// failedToStart is the reason of the event about a port that is in use, as that of
	// kube-proxy.
	failedToStart = "FailedToStartServiceHealthcheck"
	// retryDelay is the time after which a port that was in use is tried again.
	retryDelay = 30 * time.Second
	// headerTimeout and requestTimeout bound how long a client may take, and
	// maxHeaderBytes what it may send: the port is open to other machines.
	headerTimeout  = 5 * time.Second
	requestTimeout = 10 * time.Second
	maxHeaderBytes = 8 << 10
	// stopTimeout bounds how long a stop waits for requests in flight.
	stopTimeout = time.Second
)

// Servers are the servers of a node.
type Servers struct {
	options Options
	changes *services.Changes
	running map[key]*server
	// failed are the services whose ports could not be listened on.
	failed map[key]failure
}

// key is an IP family of a service. Each has a server, as with kube-proxy: the nodes with
// endpoints may differ.
type key struct {
	services.Key
	family corev1.IPFamily
}

// networks are what the servers of the families listen to.
var networks = map[corev1.IPFamily]string{corev1.IPv4Protocol: "tcp4", corev1.IPv6Protocol: "tcp6"}

// failure is a port that was in use, and when it is tried again.
type failure struct {
	port  int32
	retry time.Time
}

// New returns servers that listen to nothing before Run.
func New(o Options) *Servers {
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	return &Servers{options: o, changes: o.Services.Follow(), running: map[key]*server{}, failed: map[key]failure{}}
}

// Run listens to the ports of services on all addresses of the machine, as node ports
// do, until ctx is done.
func (s *Servers) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("servicehealth"))
	defer func() {
		for _, server := range s.running {
			server.stop()
		}
	}()
	for {
		var retry <-chan time.Time
		stop := func() bool { return true }
		if at := s.nextRetry(); !at.IsZero() {
			timer := s.options.Clock.NewTimer(at.Sub(s.options.Clock.Now()))
			retry, stop = timer.C(), timer.Stop
		}
		select {
		case <-ctx.Done():
			stop()
			return
		case <-s.changes.Changed:
			stop()
		case <-retry:
		}
		s.sync(ctx)
	}
}

// nextRetry returns when the first of the failed ports is tried again; zero without any.
func (s *Servers) nextRetry() time.Time {
	var first time.Time
	for _, f := range s.failed {
		if first.IsZero() || f.retry.Before(first) {
			first = f.retry
		}
	}
	return first
}

// sync starts, changes and stops servers by the changes since the last call.
func (s *Servers) sync(ctx context.Context) {
	changes, synced := s.changes.Take()
	if !synced {
		return
	}
	// Ports are freed first: a service may have the port of another one that is gone.
	starting, freed, now := map[key]health{}, map[int32]bool{}, s.options.Clock.Now()
	for service := range changes {
		for family := range networks {
			k := key{service, family}
			h := s.health(k)
			old := s.running[k]
			if old != nil && old.port == h.port {
				old.endpoints.Store(int64(h.endpoints))
				continue
			}
			if old != nil {
				old.stop()
				delete(s.running, k)
				freed[old.port] = true
			}
			if s.failed[k].port == h.port {
				continue // it has no port, or one that is retried
			}
			delete(s.failed, k)
			if h.port != 0 {
				starting[k] = h
			}
		}
	}
	for k, f := range s.failed {
		if freed[f.port] || !now.Before(f.retry) {
			delete(s.failed, k)
			if h := s.health(k); h.port != 0 { // it may have gone since Take
				starting[k] = h
			}
		}
	}
	for k, h := range starting {
		s.start(ctx, k, h)
	}
}

func (s *Servers) health(k key) health {
	return healthOf(s.options.Services.Get(k.Key), s.options.Node, k.family)
}

// start listens to the port of a service.
func (s *Servers) start(ctx context.Context, k key, h health) {
	logger := klog.FromContext(ctx).WithValues("service", k.Key, "family", k.family, "port", h.port)
	listener, err := s.options.Listen(networks[k.family], net.JoinHostPort("", strconv.Itoa(int(h.port))))
	if errors.Is(err, syscall.EAFNOSUPPORT) {
		return // the machine does not have the family
	}
	if err != nil {
		s.failed[k] = failure{h.port, s.options.Clock.Now().Add(retryDelay)}
		logger.Error(err, "Failed to listen to the health check node port, will retry")
		if service := s.options.Services.Get(k.Key).Service; service != nil {
			s.options.Warn(service, failedToStart, fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v", s.options.Node, k.Key, h.port, err))
		}
		return
	}
	started := &server{key: k.Key, port: h.port, proxied: s.options.Proxied}
	started.endpoints.Store(int64(h.endpoints))
	started.http = &http.Server{
		Handler: started, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	started.serving.Go(func() {
		if err := started.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "Health check node port is not served any more")
		}
	})
	s.running[k] = started
	logger.V(2).Info("Serving health check node port")
}

// server answers about one service.
type server struct {
	key       services.Key
	port      int32
	endpoints atomic.Int64
	proxied   func() bool
	http      *http.Server
	serving   sync.WaitGroup
}

func (s *server) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // a client is slow, which is its own fault
	}
	s.serving.Wait()
}

// report is the body of an answer, as kube-proxy's.
type report struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int64 `json:"localEndpoints"`
	ServiceProxyHealthy bool  `json:"serviceProxyHealthy"`
}

// ServeHTTP answers 200 while the node has ready endpoints of the service and routes
// connections to them, otherwise 503. The header X-Load-Balancing-Endpoint-Weight has
// the number of endpoints.
func (s *server) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r := report{LocalEndpoints: s.endpoints.Load(), ServiceProxyHealthy: s.proxied()}
	r.Service.Namespace, r.Service.Name = s.key.Namespace, s.key.Name
	body, err := json.Marshal(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(r.LocalEndpoints, 10))
	status := http.StatusOK
	if r.LocalEndpoints == 0 || !r.ServiceProxyHealthy {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}
