package inprocess

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// User is the user of the server's own requests.
var User = &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

// UserAgent names the server's own clients. It is also that of the manager of the fields
// that they set.
const UserAgent = "svc"

// Chain wraps a handler in the filters of in-process requests. Requests of the
// server itself are neither authenticated nor authorized.
func Chain(handler http.Handler) http.Handler {
	asServer := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(request.WithUser(req.Context(), User)))
	})
	// Handlers require an audit context; the server's own requests are not audited.
	withAudit := genericapifilters.WithAuditInit(asServer)
	withOwnAudit := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		withAudit.ServeHTTP(w, req.WithContext(withoutAudit{req.Context()}))
	})
	withWarnings := genericapifilters.WithWarningRecorder(withOwnAudit)
	withInfo := genericapifilters.WithRequestInfo(withWarnings, &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	})
	return genericapifilters.WithRequestReceivedTimestamp(withInfo)
}

// withoutAudit is a context without its audit context. What the server reads in the context of
// a client's request, such as in admission, is no part of the client's audit event.
type withoutAudit struct{ context.Context }

// Value implements context.Context.
func (c withoutAudit) Value(key any) any {
	value := c.Context.Value(key)
	if _, is := value.(*audit.AuditContext); is {
		return nil
	}
	return value
}

// ClientConfig returns the configuration of clients of the handler. They have no
// rate limit: they are components of the server.
func ClientConfig(handler http.Handler) *rest.Config {
	return &rest.Config{
		Host:      "http://in-process",
		Transport: Transport{Handler: handler},
		QPS:       -1,
		UserAgent: UserAgent,
	}
}
