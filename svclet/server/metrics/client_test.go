package metrics_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	testingclock "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/server/metrics"
)

// away is an API server that takes a second, and answers GET only.
type away struct {
	clock *testingclock.FakePassiveClock
}

func (a away) RoundTrip(req *http.Request) (*http.Response, error) {
	a.clock.SetTime(a.clock.Now().Add(time.Second))
	if req.Method != http.MethodGet {
		return nil, errors.New("away")
	}
	return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody}, nil
}

func TestRequestsToTheAPIServerAreRecorded(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Unix(0, 0))
	m := metrics.New("node-1", c)
	transport := m.Client(away{c})
	for _, method := range []string{http.MethodGet, http.MethodGet, http.MethodPatch} {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://api:6443/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := transport.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	want := `
# HELP rest_client_requests_total [ALPHA] Number of HTTP requests, partitioned by status code, method, and host.
# TYPE rest_client_requests_total counter
rest_client_requests_total{code="404",host="api:6443",method="GET"} 2
rest_client_requests_total{code="<error>",host="api:6443",method="PATCH"} 1
`
	if err := testutil.GatherAndCompare(m.Gatherer(), strings.NewReader(want), "rest_client_requests_total"); err != nil {
		t.Error(err)
	}
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "rest_client_request_duration_seconds" {
			continue
		}
		if got := f.Metric[0].Histogram; got.GetSampleCount() != 2 || got.GetSampleSum() != 2 {
			t.Errorf("the duration of GET is %v", got)
		}
		return
	}
	t.Error("no durations")
}
