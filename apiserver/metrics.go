package apiserver

import (
	"context"
	"math"
	"net/http"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorserver "k8s.io/kube-aggregator/pkg/apiserver"

	"svc.dev/svc/apis/core"
	"svc.dev/svc/apiserver/metrics"
	"svc.dev/svc/apiserver/release"
)

// installMetrics serves /metrics, where the library would serve its own metrics
// alone. With --profiling, a DELETE resets those.
func (c *chain) installMetrics(m *mux.PathRecorderMux, exists func(schema.GroupResource) bool) {
	var source prometheus.Gatherer = legacyregistry.DefaultGatherer
	if c.options.Metrics != nil {
		source = c.options.Metrics
	}
	// The library registers its metrics only with its handler.
	library := mux.NewPathRecorderMux("metrics")
	routes.MetricsWithReset{}.Install(library)
	all := promhttp.HandlerFor(metrics.New(source, c.metricsConfig(exists)), promhttp.HandlerOpts{})
	m.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		if c.options.Features.Profiling && r.Method == http.MethodDelete {
			library.ServeHTTP(w, r)
			return
		}
		all.ServeHTTP(w, r)
	})
	slis.SLIMetricsWithReset{}.Install(m)
}

// existing returns the function that reports whether there is a definition of a custom
// resource, or an API server behind this one for its group.
func existing(crds *apiextensionsserver.CustomResourceDefinitions, aggregator *aggregatorserver.APIAggregator) func(schema.GroupResource) bool {
	services := aggregator.APIRegistrationInformers.Apiregistration().V1().APIServices().Lister()
	return func(resource schema.GroupResource) bool {
		if crds != nil {
			if _, err := crds.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister().Get(resource.String()); err == nil {
				return true
			}
		}
		all, err := services.List(labels.Everything())
		return err == nil && slices.ContainsFunc(all, func(s *apiregistrationv1.APIService) bool {
			return s.Spec.Service != nil && s.Spec.Group == resource.Group
		})
	}
}

func (c *chain) metricsConfig(exists func(schema.GroupResource) bool) metrics.Config {
	builtIn := sets.New(
		schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
		schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"},
	)
	for _, kind := range c.stores.kinds {
		builtIn.Insert(schema.GroupResource{Group: kind.Hub.Group, Resource: kind.Name})
		for _, version := range kind.Versions {
			builtIn.Insert(schema.GroupResource{Group: version.GVK.Group, Resource: kind.Name})
		}
	}
	return metrics.Config{
		Release:    c.options.Release,
		ShowHidden: c.options.ShowHiddenMetrics != "",
		Deprecated: func(name string, from release.Release) {
			klog.Background().Info("This metric is deprecated, and will be hidden in a later release", "metric", name, "deprecatedFrom", from.String())
		},
		Version:     *release.Public(c.options.Release, release.SVCVersion()).Info(),
		Silent:      c.deprecated.Silent,
		IsBuiltIn:   builtIn.Has,
		Exists:      exists,
		Store:       c.stores.backend,
		Pools:       c.pools,
		Clock:       c.clock,
		Allocations: c.stores.allocations,
		Tokens:      c.identity.uses,
	}
}

// pools are those of the addresses and the node ports of services.
func (c *chain) pools() []metrics.Pool {
	env, reservations := c.stores.env, c.stores.reservations
	pools := []metrics.Pool{{
		Allocator: "nodeport", Unit: "ports", Size: float64(env.NodePorts.To - env.NodePorts.From + 1),
		Allocated: func(ctx context.Context) (int, error) {
			return reservations.Count(ctx, core.ServiceNodePortPool, func(string) bool { return true })
		},
	}}
	cidrs := env.ServiceCIDRs
	if env.ServiceRanges != nil {
		cidrs = env.ServiceRanges()
	}
	for _, cidr := range cidrs {
		pools = append(pools, metrics.Pool{
			Allocator: "clusterip", Unit: "ips", CIDR: cidr.String(), Size: size(cidr),
			Allocated: func(ctx context.Context) (int, error) {
				return reservations.Count(ctx, core.ServiceIPPool, func(key string) bool {
					address, err := netip.ParseAddr(key)
					return err == nil && cidr.Contains(address)
				})
			},
		})
	}
	return pools
}

// size returns the number of addresses of a range that services can have: not the first
// one and, of IPv4, not the last one.
func size(cidr netip.Prefix) float64 {
	all := math.Pow(2, float64(cidr.Addr().BitLen()-cidr.Bits()))
	if cidr.Addr().Is4() {
		return all - 2
	}
	return all - 1
}
