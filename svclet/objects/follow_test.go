package objects

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type ignored struct{}

func (ignored) replace([]client.Object) bool { return false }
func (ignored) set(client.Object) bool       { return false }
func (ignored) remove(client.Object)         {}
func (ignored) failed(error)                 {}

// responses closes begun when the header of the first response has arrived.
type responses struct {
	http.RoundTripper
	begun chan struct{}
}

func (r responses) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.RoundTripper.RoundTrip(req)
	close(r.begun)
	return resp, err
}

func TestAPodThatIsRemovedDuringTheListLogsNoError(t *testing.T) {
	reading := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"ConfigMapList",`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := client.NewWithWatch(
		&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		client.Options{Scheme: scheme.Scheme, Mapper: mapper, HTTPClient: &http.Client{Transport: responses{transport, reading}}})
	if err != nil {
		t.Fatal(err)
	}

	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	f := follower{
		client: c, list: func() client.ObjectList { return &corev1.ConfigMapList{} }, of: client.ListOptions{Namespace: "default"},
		clock: clock.RealClock{}, random: func() float64 { return 0 },
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx, ignored{})
	}()
	<-reading
	cancel()
	<-done

	sink, ok := logger.GetSink().(ktesting.Underlier)
	if !ok {
		t.Fatal("the logger keeps no log")
	}
	if log := sink.GetBuffer().Data(); len(log) != 0 {
		t.Errorf("logged %v", log)
	}
}
