package apiserver

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// installMetrics serves what gatherer has at /metrics, where the library would
// serve its own metrics alone. If reset is true, a DELETE resets those.
func installMetrics(m *mux.PathRecorderMux, gatherer prometheus.Gatherer, reset bool) {
	// The library registers its metrics only with its handler.
	library := mux.NewPathRecorderMux("metrics")
	routes.MetricsWithReset{}.Install(library)
	all := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{})
	m.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if reset && r.Method == http.MethodDelete {
			library.ServeHTTP(w, r)
			return
		}
		all.ServeHTTP(w, r)
	})
	slis.SLIMetricsWithReset{}.Install(m)
}
