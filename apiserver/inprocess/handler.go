package inprocess

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// User is who the server's own requests come from.
var User = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// Chain is what an in-process request passes before it reaches its handler:
// no authentication and no authorization, as it is the server's own.
func Chain(handler http.Handler) http.Handler {
	asServer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), User)))
	})
	// Handlers look for an audit context; it stays empty, as nobody audits the server's own requests.
	withAudit := genericapifilters.WithAuditInit(asServer)
	withWarnings := genericapifilters.WithWarningRecorder(withAudit)
	withInfo := genericapifilters.WithRequestInfo(withWarnings, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	return genericapifilters.WithRequestReceivedTimestamp(withInfo)
}

// ClientConfig is the configuration of clients of the handler. They have no
// rate limit: they are components of the server.
func ClientConfig(handler http.Handler) *rest.Config {
	return &rest.Config{
		Host:      "http://in-process",
		Transport: Transport{Handler: handler},
		QPS:       -1,
		UserAgent: "svc",
	}
}
