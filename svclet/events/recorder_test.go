package events

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/pod"
)

// eventAPI is a fake API that records the requests that write events, and their times.
type eventAPI struct {
	requests []string
	at       []time.Time
}

func (w *eventAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	w.requests, w.at = append(w.requests, req.Method+" "+req.URL.Path), append(w.at, time.Now())
	kind := req.Header.Get("Content-Type")
	if req.Method == http.MethodPatch {
		body, kind = []byte(`{"apiVersion":"v1","kind":"Event"}`), "application/json"
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, nil
}

// recordedBy records a number of events, event i about the pod of(i), and returns
// the API after the last write.
func recordedBy(t *testing.T, events int, qps, burst int32, of func(i int) string) *eventAPI {
	api := &eventAPI{}
	clients, err := apiclient.New(&rest.Config{Host: "http://localhost", Transport: api, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	scheme, err := apiclient.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	r := New(t.Context(), clients.Heartbeats, scheme, "node", qps, burst)
	for i := range events {
		about := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: of(i)}}
		r.Event(about, pod.Event{Type: corev1.EventTypeWarning, Reason: "Unhealthy", Message: fmt.Sprint("attempt ", i)})
	}
	time.Sleep(time.Hour)
	r.Stop()
	synctest.Wait()
	return api
}

func TestEventsAboutOneObjectAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := recordedBy(t, 200, 0, 0, func(int) string { return "p" })
		if n := len(api.requests); n == 0 || n > 25 {
			t.Errorf("%d are written: %q", n, api.requests)
		}
	})
}

func TestEventsOfAllObjectsAreWrittenAtTheRateOfTheirFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := recordedBy(t, 31, 10, 1, func(i int) string { return fmt.Sprint("p", i) })
		if n := len(api.requests); n != 31 || !strings.HasPrefix(api.requests[0], "POST ") {
			t.Fatalf("%d are written: %q", n, api.requests)
		}
		if took := api.at[30].Sub(api.at[0]); took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("30 more at 10 a second took %s", took)
		}
	})
}

func TestEventsAreDroppedOnceTheAgentStops(t *testing.T) {
	m := gomega.NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	recorded := record.NewFakeRecorder(2)
	events := &Recorder{any: until{ctx, recorded}}
	events.Event(&corev1.Pod{}, pod.Event{Type: corev1.EventTypeNormal, Reason: "Killing", Message: "one"})
	cancel()
	events.Event(&corev1.Pod{}, pod.Event{Type: corev1.EventTypeNormal, Reason: "Killing", Message: "two"})
	events.any.Event(&corev1.Node{}, corev1.EventTypeNormal, "NodeReady", "three")
	events.any.AnnotatedEventf(&corev1.Node{}, nil, corev1.EventTypeNormal, "NodeReady", "four")
	m.Expect(recorded.Events).To(gomega.HaveLen(1))
}
