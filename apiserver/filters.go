package apiserver

import (
	"net/http"

	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/klog/v2"

	"svc.dev/svc/apiserver/agents"
	"svc.dev/svc/apiserver/bodycheck"
	"svc.dev/svc/apiserver/filters/alias"
	"svc.dev/svc/apiserver/filters/disconnect"
	"svc.dev/svc/apiserver/filters/dryrun"
	"svc.dev/svc/apiserver/release"
	"svc.dev/svc/internal/footprint"
)

// filters are what a request passes before it reaches the aggregator, the last
// line first. They are the library's, in the library's order, less those that
// do nothing unless they are configured: every one costs each request a call,
// a closure and a part of a goroutine's stack.
func (b *builder) filters(handler http.Handler, c *genericapiserver.Config) http.Handler {
	handler = withHealthLine(handler)
	handler = bodycheck.Filter(handler, c.Serializer, bodycheck.Checks(b.kinds), c.MaxRequestBodyBytes)
	handler = dryrun.Filter(handler)
	handler = release.Warnings(handler, b.options.Release, b.kinds)
	handler = b.ending.filter(handler)
	handler = agents.Guard(handler, c.Authorization.Authorizer, c.Serializer)
	handler = genericapifilters.WithAuthorization(handler, c.Authorization.Authorizer, c.Serializer)
	handler = withFlowControl(handler, c)
	if c.FeatureGate.Enabled(genericfeatures.ConstrainedImpersonation) {
		handler = impersonation.WithConstrainedImpersonation(handler, c.Authorization.Authorizer, c.Serializer)
	} else {
		handler = impersonation.WithImpersonation(handler, c.Authorization.Authorizer, c.Serializer)
	}
	unauthorized := genericapifilters.Unauthorized(c.Serializer)
	if c.AuditBackend != nil {
		handler = genericapifilters.WithAudit(handler, c.AuditBackend, c.AuditPolicyRuleEvaluator, c.LongRunningFunc)
		unauthorized = genericapifilters.WithFailedAuthenticationAudit(unauthorized, c.AuditBackend, c.AuditPolicyRuleEvaluator)
	}
	handler = genericapifilters.WithAuthentication(handler, c.Authentication.Authenticator, unauthorized, c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
	handler = genericfilters.WithCORS(handler, b.options.Requests.CORSOrigins, nil, nil, nil, "true")
	handler = genericapifilters.WithWarningRecorder(handler)
	handler = withRoom(handler)
	handler = genericfilters.WithTimeoutForNonLongRunningRequests(handler, c.LongRunningFunc)
	handler = genericapifilters.WithRequestDeadline(handler, c.AuditBackend, c.AuditPolicyRuleEvaluator, c.LongRunningFunc, c.Serializer, c.RequestTimeout)
	handler = genericfilters.WithWaitGroup(handler, c.LongRunningFunc, c.NonLongRunningRequestWaitGroup)
	if c.GoawayChance > 0 {
		handler = genericfilters.WithProbabilisticGoaway(handler, c.GoawayChance)
	}
	handler = genericapifilters.WithCacheControl(handler)
	handler = genericfilters.WithHSTS(handler, b.options.Requests.HSTSDirectives)
	handler = withLogging(handler)
	handler = genericapifilters.WithRequestInfo(handler, c.RequestInfoResolver)
	handler = genericapifilters.WithRequestReceivedTimestamp(handler)
	handler = genericapifilters.WithMuxAndDiscoveryComplete(handler, b.discovered)
	handler = genericfilters.WithPanicRecovery(handler, c.RequestInfoResolver)
	handler = genericapifilters.WithAuditInit(handler)
	handler = disconnect.Filter(handler)
	return withRoomForFilters(alias.Filter(handler, groupDomain))
}

// withRoomForFilters grows the stack of the connection's goroutine for the
// request, in which nothing but watches goes beyond the filters.
func withRoomForFilters(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		footprint.GrowStackForFilters()
		handler.ServeHTTP(w, req)
	})
}

// withRoom grows the stack of the goroutine that the filter around it starts.
func withRoom(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		footprint.GrowStack()
		handler.ServeHTTP(w, req)
	})
}

func withFlowControl(handler http.Handler, c *genericapiserver.Config) http.Handler {
	if c.FlowControl == nil {
		return genericfilters.WithMaxInFlightLimit(handler, c.MaxRequestsInFlight, c.MaxMutatingRequestsInFlight, c.LongRunningFunc)
	}
	estimator := flowcontrolrequest.NewWorkEstimator(c.StorageObjectCountTracker.Get, c.FlowControl.GetInterestedWatchCount,
		flowcontrolrequest.DefaultWorkEstimatorConfig(), c.FlowControl.GetMaxSeats)
	return genericfilters.WithPriorityAndFairness(handler, c.LongRunningFunc, c.FlowControl, estimator, c.RequestTimeout/4)
}

// requestVerbosity is from when on every request is logged.
const requestVerbosity = 3

// withLogging logs requests when the verbosity, which can change while the
// server runs, asks for it.
func withLogging(handler http.Handler) http.Handler {
	logged := genericapifilters.WithLatencyTrackers(genericfilters.WithHTTPLogging(handler))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if klog.V(requestVerbosity).Enabled() {
			logged.ServeHTTP(w, req)
			return
		}
		handler.ServeHTTP(w, req)
	})
}
