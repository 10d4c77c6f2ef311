package nodeproxy

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream"

	"svc.dev/svc/apis/resource"
)

// LongRunning returns the names of the long-running subresources of the kinds,
// sorted.
func LongRunning(kinds []*resource.Kind) []string {
	names := sets.New[string]()
	for _, k := range kinds {
		for _, c := range k.Connects {
			if c.LongRunning {
				names.Insert(c.Name)
			}
		}
	}
	return sets.List(names)
}

// WithAuthorization authorizes requests for the verbs that the Connects declare
// (resource.Connect.Verb and UpgradeVerb). The authorization for the verb of the
// HTTP method comes before it.
func WithAuthorization(handler http.Handler, a authorizer.Authorizer, s runtime.NegotiatedSerializer, connects Connects) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		info, found := request.RequestInfoFrom(ctx)
		if !found {
			handler.ServeHTTP(w, req)
			return
		}
		connect, _ := connects.of(info)
		verb := requiredVerb(connect, req)
		if verb == "" || verb == info.Verb {
			handler.ServeHTTP(w, req)
			return
		}
		attributes, err := filters.GetAuthorizerAttributes(ctx)
		if err != nil {
			responsewriters.InternalError(w, req, err)
			return
		}
		attributes = withVerb{attributes, verb}
		decision, reason, err := a.Authorize(ctx, attributes)
		if decision == authorizer.DecisionAllow {
			handler.ServeHTTP(w, req)
			return
		}
		if err != nil {
			responsewriters.InternalError(w, req, err)
			return
		}
		responsewriters.Forbidden(attributes, w, req, reason, s)
	})
}

// requiredVerb returns the verb that c requires of the request, or "".
func requiredVerb(c resource.Connect, req *http.Request) string {
	if c.UpgradeVerb != "" && httpstream.IsUpgradeRequest(req) {
		return c.UpgradeVerb
	}
	return c.Verb
}

// withVerb are the attributes of a request with another verb.
type withVerb struct {
	authorizer.Attributes
	verb string
}

// GetVerb implements authorizer.Attributes.
func (w withVerb) GetVerb() string { return w.verb }
