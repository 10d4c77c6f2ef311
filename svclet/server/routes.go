package server

import (
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
)

// Handler returns the handler of the secure port.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	s.addPublic(mux)
	if s.o.CheckpointDirectory != "" {
		mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.checkpoint)
	}
	if s.o.EnableDebuggingHandlers {
		s.addDebugging(mux)
	} else {
		for _, path := range []string{
			"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/",
		} {
			mux.HandleFunc(path, disabled("Debug endpoints are disabled."))
		}
	}
	return s.counted("readwrite", s.checked(s.traced(mux)))
}

// ReadOnlyHandler returns the handler of the port without authentication: what
// other programs on the node read. It has nothing that runs commands, profiles, or
// reads logs.
func (s *Server) ReadOnlyHandler() http.Handler {
	mux := http.NewServeMux()
	s.addPublic(mux)
	return s.counted("readonly", s.traced(mux))
}

// HealthHandler returns the handler of the health port.
func (s *Server) HealthHandler() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	return mux
}

// addPublic adds the paths of both the secure and the read-only port.
func (s *Server) addPublic(mux *http.ServeMux) {
	s.addHealth(mux)
	mux.HandleFunc("GET /pods", s.listPods)
	for path, metrics := range map[string]prometheus.Gatherer{
		"/metrics": s.parts.Metrics, "/metrics/resource": s.parts.Resource,
		"/metrics/cadvisor": s.parts.Cadvisor, "/metrics/probes": s.parts.Probes,
	} {
		if metrics != nil {
			mux.Handle("GET "+path, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
		}
	}
	if s.parts.Stats != nil {
		mux.HandleFunc("GET /stats/summary", s.summary)
		mux.HandleFunc("POST /stats/summary", s.summary)
	}
}

// addDebugging adds the debugging handlers: logs, commands, streams, profiles.
func (s *Server) addDebugging(mux *http.ServeMux) {
	mux.HandleFunc("GET /runningpods/", s.listRunningPods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.containerLogs)
	for _, method := range []string{"GET ", "POST "} {
		for path, handler := range map[string]http.HandlerFunc{"/exec": s.exec, "/attach": s.attach} {
			mux.HandleFunc(method+path+"/{namespace}/{pod}/{container}", handler)
			mux.HandleFunc(method+path+"/{namespace}/{pod}/{uid}/{container}", handler)
		}
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}", s.portForward)
		mux.HandleFunc(method+"/portForward/{namespace}/{pod}/{uid}", s.portForward)
	}
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.run)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", s.run)
	if s.parts.Configz != nil {
		mux.HandleFunc("GET /configz", s.configz)
	}
	if s.o.EnableSystemLogHandler {
		logs := systemLogs(s.o.LogDirectory)
		if s.o.EnableSystemLogQuery {
			logs = s.queriedLogs(logs)
		}
		mux.Handle("GET /logs/", http.StripPrefix("/logs", logs))
	} else {
		mux.HandleFunc("/logs/", disabled("logs endpoint is disabled."))
	}
	if s.o.EnableProfilingHandler {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	} else {
		mux.HandleFunc("/debug/pprof/", disabled("profiling endpoint is disabled."))
	}
	if s.o.EnableDebugFlagsHandler && s.parts.SetVerbosity != nil {
		mux.HandleFunc("PUT /debug/flags/v", s.setVerbosity)
	} else {
		mux.HandleFunc("/debug/flags/v", disabled("flags endpoint is disabled."))
	}
}

func disabled(message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, message, http.StatusMethodNotAllowed) }
}

// checked authenticates and authorizes requests.
func (s *Server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		logger := klog.FromContext(r.Context())
		user, err := s.authenticator.Authenticate(r)
		if user == nil {
			if err != nil {
				logger.Error(err, "Failed to authenticate request")
			}
			plain(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		switch refusal := s.authorizer.Authorize(r.Context(), user, r.Method, r.URL.Path); {
		case refusal == nil:
			next.ServeHTTP(w, r)
		case refusal.Failed:
			logger.Error(refusal.Cause, "Failed to authorize request", "user", user.Name, "path", r.URL.Path)
			plain(w, http.StatusInternalServerError, refusal.Message)
		default:
			logger.V(2).Info("Denied request", "user", user.Name, "method", r.Method, "path", r.URL.Path)
			plain(w, http.StatusForbidden, refusal.Message)
		}
	})
}

// plain answers without a trailing line break, as kubelet does.
func plain(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(message)) // the client may have disconnected
}

// counted counts requests by the first segment of their path.
func (s *Server) counted(server string, next http.Handler) http.Handler {
	if s.parts.Requests == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := metricPath(r.URL.Path)
		long := slices.Contains([]string{"exec", "attach", "portforward", "debug"}, path)
		defer s.parts.Requests.Begin(metricMethod(r.Method), path, server, long)()
		next.ServeHTTP(w, r)
	})
}

// traced records a span of each request, which continues that of the client.
func (s *Server) traced(next http.Handler) http.Handler {
	if s.parts.Tracer == nil {
		return next
	}
	return otelhttp.NewHandler(next, "svclet", otelhttp.WithPropagators(tracing.Propagators()), otelhttp.WithTracerProvider(s.parts.Tracer),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string {
			return metricMethod(r.Method) + " /" + metricPath(r.URL.Path)
		}))
}

// metricPath and metricMethod bound the values of metric labels.
func metricPath(path string) string {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	first := parts[0]
	if first == "metrics" && len(parts) > 1 {
		first += "/" + parts[1]
	}
	if slices.Contains([]string{
		"healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "run", "exec", "attach",
		"portForward", "containerLogs", "configz", "runningpods", "logs", "debug", "checkpoint",
	}, first) {
		return first
	}
	return "other"
}

func metricMethod(method string) string {
	if slices.Contains([]string{"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT"}, method) {
		return method
	}
	return "other"
}
