package healthserver

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

func TestMetricsOfBothRegistriesAreGathered(t *testing.T) {
	gauge := func(registry *prometheus.Registry, name string, value float64, labels prometheus.Labels) {
		t.Helper()
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: name, ConstLabels: labels})
		g.Set(value)
		if err := registry.Register(g); err != nil {
			t.Fatal(err)
		}
	}
	libraries, controllers := prometheus.NewRegistry(), prometheus.NewRegistry()
	gauge(libraries, "go_threads", 1, nil)
	gauge(controllers, "go_threads", 2, nil)
	gauge(libraries, "workqueue_depth", 3, prometheus.Labels{"name": "certificates"})
	gauge(controllers, "workqueue_depth", 4, prometheus.Labels{"name": "job", "controller": "job"})
	gauge(libraries, "libraries", 5, nil)
	gauge(controllers, "controllers", 6, nil)
	// Of a family with two types, that of the first registry is used.
	gauge(libraries, "mixed", 7, prometheus.Labels{"name": "a"})
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "mixed", Help: "mixed", ConstLabels: prometheus.Labels{"name": "b"}})
	if err := controllers.Register(c); err != nil {
		t.Fatal(err)
	}
	both := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return merge(libraries, controllers) })
	if err := testutil.GatherAndCompare(both, strings.NewReader(`
# HELP controllers controllers
# TYPE controllers gauge
controllers 6
# HELP go_threads go_threads
# TYPE go_threads gauge
go_threads 1
# HELP libraries libraries
# TYPE libraries gauge
libraries 5
# HELP mixed mixed
# TYPE mixed gauge
mixed{name="a"} 7
# HELP workqueue_depth workqueue_depth
# TYPE workqueue_depth gauge
workqueue_depth{name="certificates"} 3
workqueue_depth{controller="job",name="job"} 4
`)); err != nil {
		t.Error(err)
	}
}
