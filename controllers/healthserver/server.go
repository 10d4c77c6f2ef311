package healthserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/logs"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// Server serves on a port that is open already. A nil Server has no port.
type Server struct {
	options *Options
	info    *genericapiserver.SecureServingInfo
}

// Listen opens the port. Errors name the flag to correct.
func Listen(o *Options) (*Server, error) {
	if o.SecureServing.BindPort == 0 {
		return nil, nil
	}
	if err := o.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w; name a directory that can be written, or leave it out", err)
	}
	address := net.JoinHostPort(o.SecureServing.BindAddress.String(), strconv.Itoa(o.SecureServing.BindPort))
	s := &Server{options: o}
	switch err := o.SecureServing.ApplyTo(&s.info); {
	case err != nil && o.SecureServing.Listener == nil:
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another --secure-port or --bind-address", address, err)
	case err != nil:
		return nil, errors.Join(fmt.Errorf("TLS: %w; see --tls-cert-file, --tls-private-key-file and the other --tls flags", err), o.SecureServing.Listener.Close())
	}
	return s, nil
}

// stopTimeout is how long requests in flight may take after ctx is done.
const stopTimeout = 2 * time.Second

// Serve starts to serve, until ctx is done, and returns. The API server of the
// kubeconfig file connection, or of the pod's service account, authenticates and
// authorizes users.
func (s *Server) Serve(ctx context.Context, connection string, checks []healthz.HealthChecker) (stopped <-chan struct{}, err error) {
	if s == nil {
		none := make(chan struct{})
		close(none)
		return none, nil
	}
	handler, err := s.handler(connection, checks)
	if err != nil {
		return nil, errors.Join(err, s.info.Listener.Close())
	}
	stopped, _, err = s.info.Serve(handler, stopTimeout, ctx.Done())
	return stopped, err
}

func (s *Server) handler(connection string, checks []healthz.HealthChecker) (http.Handler, error) {
	o := s.options
	if o.Authentication.RemoteKubeConfigFile == "" {
		o.Authentication.RemoteKubeConfigFile = connection
	}
	if o.Authorization.RemoteKubeConfigFile == "" {
		o.Authorization.RemoteKubeConfigFile = connection
	}
	var authentication genericapiserver.AuthenticationInfo
	if err := o.Authentication.ApplyTo(&authentication, s.info, nil); err != nil {
		return nil, fmt.Errorf("--authentication-kubeconfig: %w", err)
	}
	var authorization genericapiserver.AuthorizationInfo
	if err := o.Authorization.ApplyTo(&authorization); err != nil {
		return nil, fmt.Errorf("--authorization-kubeconfig: %w", err)
	}
	codecs := scheme.Codecs
	infos := &request.RequestInfoFactory{}
	handler := genericapifilters.WithAuthorization(paths(o.Profiling, checks), authorization.Authorizer, codecs)
	handler = genericapifilters.WithAuthentication(handler, authentication.Authenticator, genericapifilters.Unauthorized(codecs), nil, nil)
	handler = genericapifilters.WithRequestInfo(handler, infos)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHTTPLogging(handler)
	return genericfilters.WithPanicRecovery(handler, infos), nil
}

// paths returns the handler of all paths. A manager that waits for the lease is as
// ready as the leader.
func paths(profiling bool, checks []healthz.HealthChecker) http.Handler {
	checks = append([]healthz.HealthChecker{healthz.PingHealthz}, checks...)
	m := mux.NewPathRecorderMux("controller-manager")
	healthz.InstallHandler(m, checks...)
	healthz.InstallLivezHandler(m, checks...)
	healthz.InstallReadyzHandler(m, checks...)
	m.Handle("/metrics", promhttp.HandlerFor(Metrics(), promhttp.HandlerOpts{}))
	slis.SLIMetrics{}.Install(m)
	if profiling {
		routes.Profiling{}.Install(m)
		routes.DebugFlags{}.Install(m, "v", routes.StringFlagPutHandler(logs.GlogSetter))
	}
	return m
}
