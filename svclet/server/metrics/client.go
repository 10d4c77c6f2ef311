package metrics

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// clientMetrics are those that client-go has in other programs, where they are
// global.
type clientMetrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newClientMetrics() *clientMetrics {
	return &clientMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: alpha + "Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "method", "host"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: alpha + "Request latency in seconds. Broken down by verb, and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
}

// Client returns a transport that records the requests to the API server: how many
// and, until the header of the response, how long.
func (m *Metrics) Client(next http.RoundTripper) http.RoundTripper {
	return &recorded{next, m.client, m.clock}
}

type recorded struct {
	next    http.RoundTripper
	metrics *clientMetrics
	clock   clock.PassiveClock
}

// RoundTrip implements http.RoundTripper.
func (r *recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	began := r.clock.Now()
	resp, err := r.next.RoundTrip(req)
	r.metrics.duration.WithLabelValues(req.Method, req.URL.Host).Observe(r.clock.Since(began).Seconds())
	code := "<error>"
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
	}
	r.metrics.requests.WithLabelValues(code, req.Method, req.URL.Host).Inc()
	return resp, err
}

// WrappedRoundTripper lets the connections below be closed.
func (r *recorded) WrappedRoundTripper() http.RoundTripper { return r.next }
