package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/apiserver/release"
)

// stored is a Store of fixed numbers.
type stored struct {
	objects  map[schema.GroupResource]int64
	sizes    []int64
	measured int
}

func (s *stored) Objects(context.Context) map[schema.GroupResource]int64 {
	s.measured++
	return s.objects
}

func (s *stored) Sizes(context.Context) []int64 { return s.sizes }

func newConfig() Config {
	return Config{
		Release:   release.Release{Major: 1, Minor: 28},
		Silent:    func(schema.GroupVersionResource, string) bool { return false },
		IsBuiltIn: func(r schema.GroupResource) bool { return !strings.Contains(r.Group, "example.com") },
		Exists:    func(r schema.GroupResource) bool { return !strings.HasPrefix(r.Resource, "invented") },
		Store:     &stored{},
		Clock:     clocktesting.NewFakePassiveClock(time.Unix(0, 0)),
	}
}

// lines gathers in the text format the lines that contain part.
func lines(t *testing.T, g prometheus.Gatherer, part string) []string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	var found []string
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, part) {
			found = append(found, strings.TrimSuffix(line, "\n"))
		}
	}
	return found
}

func expect(t *testing.T, g prometheus.Gatherer, part string, want ...string) {
	t.Helper()
	if got := lines(t, g, part); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("metrics are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestMetricsAreDeprecatedAndHiddenAsOfTheRelease(t *testing.T) {
	for _, test := range []struct {
		help       string
		minor      int
		showHidden bool
		want       string // empty if it is hidden
	}{
		{"[STABLE] Good.", 28, false, "[STABLE] Good."},
		{"[STABLE] (Deprecated since 1.34.0) Old.", 28, false, "[STABLE] Old."},
		{"[STABLE] (Deprecated since 1.34.0) Old.", 34, false, "[STABLE] (Deprecated from 1.34) Old."},
		{"[STABLE] (Deprecated since 1.34.0) Old.", 36, false, "[STABLE] (Deprecated from 1.34) Old."},
		{"[STABLE] (Deprecated since 1.34.0) Old.", 37, false, ""},
		{"[STABLE] (Deprecated since 1.34.0) Old.", 37, true, "[STABLE] (Deprecated from 1.34) Old."},
		{"[BETA] (Deprecated from 1.27) Old.", 27, false, "[BETA] (Deprecated from 1.27) Old."},
		{"[BETA] (Deprecated from 1.27) Old.", 28, false, ""},
		{"[ALPHA] (Deprecated since 1.28.0) Old.", 28, false, ""},
	} {
		registry := prometheus.NewRegistry()
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "metric", Help: test.help}))
		c := newConfig()
		c.Release.Minor, c.ShowHidden = test.minor, test.showHidden
		var want []string
		if test.want != "" {
			want = []string{"# HELP metric " + test.want}
		}
		var told []string
		c.Deprecated = func(name string, from release.Release) {
			if name == "metric" { // svc's own have their releases
				told = append(told, from.String())
			}
		}
		t.Run(fmt.Sprintf("%s in 1.%d", test.help, test.minor), func(t *testing.T) {
			g := New(registry, c)
			for range 2 { // a warning once
				expect(t, g, "HELP metric", want...)
			}
			var wantTold []string
			if _, from, isDeprecated := strings.Cut(test.want, "(Deprecated from "); isDeprecated {
				release, _, _ := strings.Cut(from, ")")
				wantTold = []string{release}
			}
			if !slices.Equal(told, wantTold) {
				t.Errorf("warnings are %q, want %q", told, wantTold)
			}
		})
	}
}

func TestAllocationsAreCountedByRangeAndScope(t *testing.T) {
	c := newConfig()
	c.Allocations = NewAllocations()
	c.Allocations.Address("10.0.0.0/24", false, nil)
	c.Allocations.Address("10.0.0.0/24", false, nil)
	c.Allocations.Address("10.0.0.0/24", true, errors.New("taken"))
	c.Allocations.Port(true, nil)
	expect(t, New(prometheus.NewRegistry(), c), "_allocation_",
		"# HELP kube_apiserver_clusterip_allocator_allocation_errors_total [ALPHA] Number of errors trying to allocate Cluster IPs",
		"# TYPE kube_apiserver_clusterip_allocator_allocation_errors_total counter",
		`kube_apiserver_clusterip_allocator_allocation_errors_total{cidr="10.0.0.0/24",scope="static"} 1`,
		"# HELP kube_apiserver_clusterip_allocator_allocation_total [ALPHA] Number of Cluster IPs allocations",
		"# TYPE kube_apiserver_clusterip_allocator_allocation_total counter",
		`kube_apiserver_clusterip_allocator_allocation_total{cidr="10.0.0.0/24",scope="dynamic"} 2`,
		"# HELP kube_apiserver_nodeport_allocator_allocation_total [ALPHA] Number of NodePort allocations",
		"# TYPE kube_apiserver_nodeport_allocator_allocation_total counter",
		`kube_apiserver_nodeport_allocator_allocation_total{scope="static"} 1`)
}

func TestRequestedDeprecatedVersionsAreThoseOfTheRelease(t *testing.T) {
	registry := prometheus.NewRegistry()
	requested := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: requestedDeprecatedAPIs}, []string{"group", "version", "resource", "subresource", "removed_release"})
	registry.MustRegister(requested)
	requested.WithLabelValues("", "v1", "endpoints", "", "").Set(1)
	requested.WithLabelValues("apps", "v1beta1", "deployments", "", "1.16").Set(1)
	c := newConfig()
	c.Silent = func(r schema.GroupVersionResource, _ string) bool { return r.Resource == "endpoints" }
	expect(t, New(registry, c), requestedDeprecatedAPIs+"{",
		requestedDeprecatedAPIs+`{group="apps",removed_release="1.16",resource="deployments",subresource="",version="v1beta1"} 1`)
}

func TestHistogramsHaveSeriesForAllResourcesTogether(t *testing.T) {
	registry := prometheus.NewRegistry()
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "latency", Buckets: []float64{1, 2}}, []string{"group", "resource", "verb"})
	registry.MustRegister(latency)
	latency.WithLabelValues("", "pods", "GET").Observe(0.5)
	latency.WithLabelValues("apps", "deployments", "GET").Observe(1.5)
	latency.WithLabelValues("", "pods", "LIST").Observe(3)
	g := New(registry, newConfig())
	for range 2 { // gathering changes no metric
		expect(t, g, "latency_",
			`latency_bucket{verb="GET",le="1"} 1`, `latency_bucket{verb="GET",le="2"} 2`, `latency_bucket{verb="GET",le="+Inf"} 2`,
			`latency_sum{verb="GET"} 2`, `latency_count{verb="GET"} 2`,
			`latency_bucket{verb="LIST",le="1"} 0`, `latency_bucket{verb="LIST",le="2"} 0`, `latency_bucket{verb="LIST",le="+Inf"} 1`,
			`latency_sum{verb="LIST"} 3`, `latency_count{verb="LIST"} 1`)
	}
}

func TestCustomResourcesBeyondTheGreatestNumberShareSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests"}, []string{"group", "resource", "verb"})
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "running", Help: "[STABLE]"}, []string{"group", "resource"})
	versions := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "resource_version", Help: "[ALPHA]"}, []string{"group", "resource"})
	registry.MustRegister(requests, running, versions)
	g := New(registry, newConfig())
	for i := range maxCustomResources + 10 {
		name := fmt.Sprintf("r%03d", i)
		requests.WithLabelValues("example.com", name, "GET").Add(2)
		running.WithLabelValues("example.com", name).Set(1)
		versions.WithLabelValues("example.com", name).Set(7)
	}
	requests.WithLabelValues("apps", "deployments", "GET").Inc()
	expect(t, g, `resource="other"`, `requests{resource="other",verb="GET"} 20`, `running{resource="other"} 10`)
	expect(t, g, `requests{group="apps"`, `requests{group="apps",resource="deployments",verb="GET"} 1`)
	for name, want := range map[string]int{"requests{": maxCustomResources + 2, "running{": maxCustomResources + 1, "resource_version{": maxCustomResources} {
		if got := len(lines(t, g, name)); got != want {
			t.Errorf("%d series %s}, want %d", got, name, want)
		}
	}
	// A resource that gets series later shares them, too: the series of the first
	// ones continue.
	requests.WithLabelValues("aaa.example.com", "new", "GET").Inc()
	expect(t, g, `requests{resource="other"`, `requests{resource="other",verb="GET"} 21`)
}

func TestResourcesThatDoNotExistShareSeries(t *testing.T) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."}, []string{"group", "resource"})
	for n := range 2 * maxCustomResources {
		requests.WithLabelValues("example.com", fmt.Sprintf("invented%d", n)).Inc()
	}
	requests.WithLabelValues("example.com", "real").Inc()
	registry := prometheus.NewRegistry()
	registry.MustRegister(requests)
	expect(t, New(registry, newConfig()), "requests_total{", `requests_total{resource="other"} 100`, `requests_total{group="example.com",resource="real"} 1`)
}

func TestTheSharedSeriesOfACounterDoesNotFallWhenAResourceIsDefined(t *testing.T) {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."}, []string{"group", "resource"})
	requests.WithLabelValues("example.com", "early").Add(3)
	registry := prometheus.NewRegistry()
	registry.MustRegister(requests)
	c, defined := newConfig(), false
	c.Exists = func(schema.GroupResource) bool { return defined }
	g := New(registry, c)
	expect(t, g, "requests_total{", `requests_total{resource="other"} 3`)
	defined = true
	requests.WithLabelValues("example.com", "early").Inc()
	expect(t, g, "requests_total{", `requests_total{group="example.com",resource="early"} 4`)
	defined = false
	requests.WithLabelValues("example.com", "never").Inc()
	expect(t, g, `"other"`, `requests_total{resource="other"} 3`)
}

func TestStoredObjectsAndAllocatedAddressesAreMeasured(t *testing.T) {
	store := &stored{objects: map[schema.GroupResource]int64{{Resource: "pods"}: 3, {Group: "apps", Resource: "deployments"}: -1}, sizes: []int64{4096}}
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	c := newConfig()
	c.Store, c.Clock = store, clock
	pools := []Pool{
		{Allocator: "clusterip", Unit: "ips", CIDR: "10.0.0.0/24", Size: 254, Allocated: func(context.Context) (int, error) { return 4, nil }},
		{Allocator: "clusterip", Unit: "ips", CIDR: "fd00::/120", Size: 255, Allocated: func(context.Context) (int, error) { return 5, nil }},
		{Allocator: "nodeport", Unit: "ports", Size: 10, Allocated: func(context.Context) (int, error) { return 0, errors.New("no answer") }},
	}
	c.Pools = func() []Pool { return pools }
	g := New(prometheus.NewRegistry(), c)
	expect(t, g, "objects{",
		`apiserver_resource_objects{group="",resource="pods"} 3`, `apiserver_resource_objects{group="apps",resource="deployments"} -1`,
		`apiserver_storage_objects{resource="pods"} 3`, `apiserver_storage_objects{resource="deployments.apps"} -1`)
	expect(t, g, "size_bytes{", `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 4096`)
	expect(t, g, "kube_apiserver_clusterip_allocator_allocated_ips{",
		`kube_apiserver_clusterip_allocator_allocated_ips{cidr="10.0.0.0/24"} 4`, `kube_apiserver_clusterip_allocator_allocated_ips{cidr="fd00::/120"} 5`)
	expect(t, g, `available_ips{cidr="10.0`, `kube_apiserver_clusterip_allocator_available_ips{cidr="10.0.0.0/24"} 250`)
	expect(t, g, "nodeport")
	if store.measured != 1 {
		t.Errorf("measured %d times within the interval, want once", store.measured)
	}
	clock.SetTime(time.Unix(0, 0).Add(usageInterval))
	lines(t, g, "")
	if store.measured != 2 {
		t.Errorf("measured %d times after the interval, want twice", store.measured)
	}
}

func TestTheBuildIsThatOfTheVersionEndpoint(t *testing.T) {
	c := newConfig()
	c.Version.Major, c.Version.Minor, c.Version.GitVersion = "1", "28", "v1.28.0+svc-1"
	expect(t, New(prometheus.NewRegistry(), c), "kubernetes_build_info{",
		`kubernetes_build_info{build_date="",compiler="",git_commit="",git_tree_state="",git_version="v1.28.0+svc-1",go_version="",major="1",minor="28",platform=""} 1`)
}

func TestWebhooksAndPoliciesBeyondTheGreatestNumberShareSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	webhooks := prometheus.NewCounterVec(prometheus.CounterOpts{Name: webhookMetrics + "request_total"}, []string{"name", "operation"})
	policies := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_validating_admission_policy_check_duration_seconds"},
		[]string{"policy", "policy_binding"})
	queues := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_adds_total"}, []string{"name"})
	registry.MustRegister(webhooks, policies, queues)
	const surplus = 3
	for i := range maxConfigurations + surplus {
		name := fmt.Sprintf("name-%03d", i)
		webhooks.WithLabelValues(name, "CREATE").Inc()
		policies.WithLabelValues(name, "binding").Observe(1)
		queues.WithLabelValues(name).Inc()
	}
	limited := New(registry, newConfig())
	expect(t, limited, `operation="CREATE"} 3`, fmt.Sprintf(`%srequest_total{name="other",operation="CREATE"} %d`, webhookMetrics, surplus))
	expect(t, limited, `_count{policy="other"`, fmt.Sprintf(`apiserver_validating_admission_policy_check_duration_seconds_count{policy="other",policy_binding="binding"} %d`, surplus))
	if got := len(lines(t, limited, webhookMetrics+"request_total{")); got != maxConfigurations+1 {
		t.Errorf("%d series of webhooks", got)
	}
	if got := len(lines(t, limited, "workqueue_adds_total{")); got != maxConfigurations+surplus {
		t.Errorf("%d series of queues", got)
	}

	webhooks.WithLabelValues("new", "UPDATE").Inc()
	webhooks.WithLabelValues("name-000", "UPDATE").Inc()
	expect(t, limited, `operation="UPDATE"`,
		webhookMetrics+`request_total{name="name-000",operation="UPDATE"} 1`, webhookMetrics+`request_total{name="other",operation="UPDATE"} 1`)
}
