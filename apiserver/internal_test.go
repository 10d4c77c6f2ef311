package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"svc.dev/svc/apis/autoscaling"
	"svc.dev/svc/apiserver/authorization"
	"svc.dev/svc/apiserver/registry/registrytest"
)

func newView(t *testing.T) *internalView {
	t.Helper()
	s := registrytest.Start(t, autoscaling.Kinds()...)
	authorizer, err := authorization.New(authorization.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := newInternalView(s.Scheme, s.Registry, authorizer, layers{utilfeature.DefaultFeatureGate})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func answer(ctx context.Context, v *internalView, path string) (int, string) {
	w := httptest.NewRecorder()
	v.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

const autoscalers = "/apis/autoscaling/%s/namespaces/default/horizontalpodautoscalers"

func TestTheInternalViewServesEveryVersion(t *testing.T) {
	v := newView(t)
	v.complete(http.NotFoundHandler())
	for _, version := range []string{"v1", "v2", "v1"} {
		if code, body := answer(t.Context(), v, fmt.Sprintf(autoscalers, version)); code != http.StatusOK {
			t.Errorf("%s: %d %s", version, code, body)
		}
	}
	if code, body := answer(t.Context(), v, "/apis/autoscaling/v2"); code != http.StatusOK || !strings.Contains(body, `"horizontalpodautoscalers/status"`) {
		t.Errorf("the document of a version: %d %s", code, body)
	}
	for _, path := range []string{fmt.Sprintf(autoscalers, "v3"), "/apis/autoscaling/v2/nothings", "/apis", "/"} {
		if code, body := answer(t.Context(), v, path); code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

func TestTheInternalViewPassesOtherRequestsToTheChainWhenItIsComplete(t *testing.T) {
	v := newView(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, body := answer(ctx, v, "/healthz"); code != http.StatusServiceUnavailable {
		t.Errorf("before, for a client that does not wait: %d %s", code, body)
	}
	answered := make(chan int)
	go func() {
		code, _ := answer(t.Context(), v, "/healthz")
		answered <- code
	}()
	v.complete(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if code := <-answered; code != http.StatusTeapot {
		t.Errorf("the one that waited got %d", code)
	}
	if code, _ := answer(t.Context(), v, "/apis/example.com/v1/widgets"); code != http.StatusTeapot {
		t.Errorf("a custom resource got %d", code)
	}
}
