package agents

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestWhoMayOnlyReadDoesNotGetIntoAContainer(t *testing.T) {
	const exec = "/api/v1/namespaces/ns/pods/p/exec"
	const node = "/api/v1/nodes/n/proxy/exec/ns/p/c"
	upgrade := http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}}
	for _, test := range []struct {
		rule, method, path, user string
		want                     int
		header                   http.Header
	}{
		{"a reader opens no websocket", http.MethodGet, exec, "reader", http.StatusForbidden, nil},
		{"nor one to attach", http.MethodGet, "/api/v1/namespaces/ns/pods/p/attach", "reader", http.StatusForbidden, nil},
		{"nor one to a port", http.MethodGet, "/api/v1/namespaces/ns/pods/p/portforward", "reader", http.StatusForbidden, nil},
		{"who may create does", http.MethodGet, exec, "creator", http.StatusOK, nil},
		{"what creates was authorized before", http.MethodPost, exec, "reader", http.StatusOK, nil},
		{"a reader reads logs", http.MethodGet, "/api/v1/namespaces/ns/pods/p/log", "reader", http.StatusOK, nil},
		{"a reader reads pods", http.MethodGet, "/api/v1/namespaces/ns/pods/p", "reader", http.StatusOK, nil},
		{"another group's pods are none of ours", http.MethodGet, "/apis/metrics.k8s.io/v1/namespaces/ns/pods/p/exec", "reader", http.StatusOK, nil},
		{"a reader opens no websocket at a node", http.MethodGet, node, "reader", http.StatusForbidden, upgrade},
		{"nor by another method", http.MethodPut, node, "reader", http.StatusForbidden, upgrade},
		{"who may create at the node does", http.MethodGet, node, "creator", http.StatusOK, upgrade},
		{"a reader reads what a node has", http.MethodGet, "/api/v1/nodes/n/proxy/metrics", "reader", http.StatusOK, nil},
		{"a pod's own websockets are what it serves", http.MethodGet, "/api/v1/namespaces/ns/pods/p/proxy/ws", "reader", http.StatusOK, upgrade},
	} {
		t.Run(test.rule, func(t *testing.T) {
			creators := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetVerb() == "create" && a.GetUser().GetName() == "creator" {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			handler := Guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), creators, serializer.NewCodecFactory(runtime.NewScheme()))
			req := httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil)
			maps.Copy(req.Header, test.header)
			resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
			info, err := resolver.NewRequestInfo(req)
			if err != nil {
				t.Fatal(err)
			}
			ctx := request.WithRequestInfo(request.WithUser(req.Context(), &user.DefaultInfo{Name: test.user}), info)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, req.WithContext(ctx))
			if w.Code != test.want {
				t.Errorf("got %d, want %d: %s", w.Code, test.want, w.Body)
			}
		})
	}
}
