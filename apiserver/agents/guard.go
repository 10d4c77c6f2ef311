package agents

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"
)

// Guard lets nobody into a container who may not create there. A websocket is
// opened with GET, which by itself asks for no more than reading. The same holds
// for what is upgraded on its way through nodes/proxy: the agent behind it sees
// the API server's own certificate, with which everything is allowed.
func Guard(handler http.Handler, a authorizer.Authorizer, s runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		info, found := request.RequestInfoFrom(ctx)
		if !found || !opens(info, req) {
			handler.ServeHTTP(w, req)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(ctx)
		if err != nil {
			responsewriters.InternalError(w, req, err)
			return
		}
		creates := create{attributes}
		decision, reason, err := a.Authorize(ctx, creates)
		if decision == authorizer.DecisionAllow {
			handler.ServeHTTP(w, req)
			return
		}
		if err != nil {
			responsewriters.InternalError(w, req, err)
			return
		}
		responsewriters.Forbidden(creates, w, req, reason, s)
	})
}

// opens reports whether a request leads into a container and was not
// authorized as what creates something there.
func opens(info *request.RequestInfo, req *http.Request) bool {
	if !info.IsResourceRequest || info.APIGroup != "" || info.Verb == "create" {
		return false
	}
	switch info.Resource + "/" + info.Subresource {
	case "pods/exec", "pods/attach", "pods/portforward":
		return true
	case "nodes/proxy":
		return httpstream.IsUpgradeRequest(req)
	}
	return false
}

// create are the attributes of a request as if it created.
type create struct{ authorizer.Attributes }

// GetVerb implements authorizer.Attributes.
func (create) GetVerb() string { return "create" }
