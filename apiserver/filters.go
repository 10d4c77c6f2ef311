package apiserver

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/routes"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"svc.dev/svc/apiserver/bodycheck"
	"svc.dev/svc/apiserver/filters/alias"
	"svc.dev/svc/apiserver/filters/badoptions"
	"svc.dev/svc/apiserver/filters/collection"
	"svc.dev/svc/apiserver/filters/compression"
	"svc.dev/svc/apiserver/filters/disconnect"
	"svc.dev/svc/apiserver/filters/dryrun"
	"svc.dev/svc/apiserver/filters/healthline"
	"svc.dev/svc/apiserver/filters/mediatype"
	"svc.dev/svc/apiserver/filters/objectwatch"
	"svc.dev/svc/apiserver/filters/original"
	"svc.dev/svc/apiserver/filters/warnings"
	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/apiserver/nodeproxy"
	"svc.dev/svc/apiserver/patcherror"
	"svc.dev/svc/internal/footprint"
)

// filters wraps the aggregator in the filters, the innermost first: a request
// passes them from the last line to the first. They are the library's, in the
// library's order, without those that are not configured: each filter costs a
// call, a closure and a part of the goroutine's stack for each request.
func (c *chain) filters(handler http.Handler, config *genericapiserver.Config) http.Handler {
	remote := func(req *http.Request) bool { return c.remote(req) }
	handler = original.Restore(handler, remote)
	if !c.stores.served.OpenAPI3() {
		handler = withoutOpenAPI3(handler)
	}
	handler = withExplainedDryRuns(handler, config.Serializer)
	handler = healthline.Filter(c.withOlderAPIServices(handler))
	if c.hosted != nil {
		handler = c.hosted.namespaces.Filter(handler, config.Serializer)
	}
	handler = collection.Filter(handler)
	if config.FeatureGate.Enabled(genericfeatures.APIResponseCompression) {
		handler = compression.Filter(handler, c.items)
	}
	connects := nodeproxy.NewConnects(c.stores.kinds)
	proxied := func(req *http.Request) bool { return connects.Proxies(req) || remote(req) }
	handler = bodycheck.Filter(handler, config.Serializer, bodycheck.Checks(c.stores.kinds, c.stores.scheme, c.stores.served.Fields()), config.MaxRequestBodyBytes, proxied)
	handler = dryrun.Filter(handler)
	handler = c.deprecated.Filter(handler)
	handler = c.drain.Filter(handler)
	handler = nodeproxy.WithAuthorization(handler, config.Authorization.Authorizer, config.Serializer, connects)
	handler = genericapifilters.WithAuthorization(handler, config.Authorization.Authorizer, config.Serializer)
	handler = withFlowControl(handler, config)
	if c.stores.gate(string(gates.ConstrainedImpersonation)) {
		handler = impersonation.WithConstrainedImpersonation(handler, config.Authorization.Authorizer, config.Serializer)
	} else {
		handler = impersonation.WithImpersonation(handler, config.Authorization.Authorizer, config.Serializer)
	}
	unauthorized := genericapifilters.Unauthorized(config.Serializer)
	if config.AuditBackend != nil {
		handler = genericapifilters.WithAudit(handler, config.AuditBackend, config.AuditPolicyRuleEvaluator, config.LongRunningFunc)
		unauthorized = genericapifilters.WithFailedAuthenticationAudit(unauthorized, config.AuditBackend, config.AuditPolicyRuleEvaluator)
	}
	if c.options.Tracing.ConfigFile != "" {
		// After authentication, so that only authenticated clients influence which requests
		// have spans.
		handler = genericapifilters.WithTracing(handler, config.TracerProvider)
	}
	handler = genericapifilters.WithAuthentication(handler, config.Authentication.Authenticator, unauthorized, config.Authentication.APIAudiences, config.Authentication.RequestHeaderConfig)
	handler = genericfilters.WithCORS(handler, c.options.Requests.CORSOrigins, nil, nil, nil, "true")
	handler = warnings.Filter(handler)
	handler = withStack(handler)
	handler = genericfilters.WithTimeoutForNonLongRunningRequests(handler, config.LongRunningFunc)
	handler = genericapifilters.WithRequestDeadline(handler, config.AuditBackend, config.AuditPolicyRuleEvaluator, config.LongRunningFunc, config.Serializer, config.RequestTimeout)
	handler = genericfilters.WithWaitGroup(handler, config.LongRunningFunc, config.NonLongRunningRequestWaitGroup)
	if config.GoawayChance > 0 {
		handler = genericfilters.WithProbabilisticGoaway(handler, config.GoawayChance)
	}
	handler = c.drain.Connections(handler)
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHSTS(handler, c.options.Requests.HSTSDirectives)
	handler = withLogging(handler)
	// Without the trackers the SLI metrics of requests are missing.
	handler = genericapifilters.WithLatencyTrackers(handler)
	handler = genericapifilters.WithRequestInfo(handler, badoptions.Resolver(config.RequestInfoResolver))
	handler = objectwatch.Filter(handler, config.RequestInfoResolver)
	handler = genericapifilters.WithRequestReceivedTimestamp(handler)
	handler = genericapifilters.WithMuxAndDiscoveryComplete(handler, c.discovered)
	handler = genericfilters.WithPanicRecovery(handler, config.RequestInfoResolver)
	handler = genericapifilters.WithAuditInit(handler)
	handler = disconnect.Filter(handler)
	var discovery alias.Discovery
	discovery.V2Beta1, discovery.V2 = c.stores.served.Discovery()
	return withStackForFilters(c.domainFilter(mediatype.Filter(alias.Filter(handler, c.hosted.domain(), discovery)), config))
}

// withStackForFilters counts the request, and grows the stack of the connection's goroutine, on
// which only watches go beyond the filters.
func withStackForFilters(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		footprint.CountRequest()
		footprint.GrowStackForFilters()
		handler.ServeHTTP(w, req)
	})
}

// withExplainedDryRuns explains the errors of dry runs of patches of API services, as the
// server of custom resources does those of its own.
func withExplainedDryRuns(handler http.Handler, s runtime.NegotiatedSerializer) http.Handler {
	explained := patcherror.DryRunFilter(handler, s)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := request.RequestInfoFrom(req.Context()); ok && info.APIGroup == apiregistrationv1.GroupName {
			explained.ServeHTTP(w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

// withoutOpenAPI3 does not serve version 3 of the OpenAPI documents, so that clients read
// version 2. The servers of the chain need them for server-side apply.
func withoutOpenAPI3(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if isOpenAPI3(req.URL.Path) {
			http.NotFound(w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}

const openAPI3Path = "/openapi/v3"

func isOpenAPI3(path string) bool {
	return path == openAPI3Path || strings.HasPrefix(path, openAPI3Path+"/")
}

// indexWithoutOpenAPI3 serves the index at / without the paths that withoutOpenAPI3 does not serve.
func indexWithoutOpenAPI3(server *genericapiserver.GenericAPIServer) {
	paths := server.Handler.NonGoRestfulMux
	for _, path := range []string{"/", "/index.html"} { // those of routes.Index
		paths.Unregister(path)
	}
	routes.Index{}.Install(listedWithoutOpenAPI3{server}, paths)
}

// listedWithoutOpenAPI3 lists the paths of a server but those of version 3 of the OpenAPI documents.
type listedWithoutOpenAPI3 struct{ routes.ListedPathProvider }

// ListedPaths implements routes.ListedPathProvider.
func (l listedWithoutOpenAPI3) ListedPaths() []string {
	return slices.DeleteFunc(l.ListedPathProvider.ListedPaths(), isOpenAPI3)
}

// withStack grows the stack of the goroutine that the timeout filter starts.
func withStack(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		footprint.GrowStack()
		handler.ServeHTTP(w, req)
	})
}

func withFlowControl(handler http.Handler, config *genericapiserver.Config) http.Handler {
	if config.FlowControl == nil {
		return genericfilters.WithMaxInFlightLimit(handler, config.MaxRequestsInFlight, config.MaxMutatingRequestsInFlight, config.LongRunningFunc)
	}
	estimator := flowcontrolrequest.NewWorkEstimator(config.StorageObjectCountTracker.Get, config.FlowControl.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), config.FlowControl.GetMaxSeats)
	return genericfilters.WithPriorityAndFairness(handler, config.LongRunningFunc, config.FlowControl, badoptions.Estimator(estimator), config.RequestTimeout/4)
}

// requestVerbosity is the log verbosity from which every request is logged.
const requestVerbosity = 3

// withLogging logs requests at requestVerbosity. The verbosity can change while
// the server runs.
func withLogging(handler http.Handler) http.Handler {
	logged := genericfilters.WithHTTPLogging(handler)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if klog.V(requestVerbosity).Enabled() {
			logged.ServeHTTP(w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}
