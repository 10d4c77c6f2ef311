// Package metrics owns the content of /metrics: the metrics of the libraries and of
// the controllers as the emulated release has them, with a bounded number of series.
package metrics

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/release"
)

// Config is what the metrics depend on.
type Config struct {
	// Release decides which metrics are deprecated and which are hidden.
	Release release.Release
	// ShowHidden shows the metrics that the release hides.
	ShowHidden bool
	// Deprecated, unless nil, is called once for each metric that is shown though the release
	// deprecates it (document 2, section 9, rule 12).
	Deprecated func(name string, from release.Release)
	// Version is the content of /version.
	Version version.Info
	// Silent reports whether the release does not count requests to a resource's
	// deprecated version, or to a subresource with a body of one.
	Silent func(of schema.GroupVersionResource, subresource string) bool
	// IsBuiltIn reports whether a resource is none of a CustomResourceDefinition.
	IsBuiltIn func(schema.GroupResource) bool
	// Exists reports whether another resource is one of a CustomResourceDefinition, or may be
	// one of an API server behind this one.
	Exists func(schema.GroupResource) bool
	// Store and Pools are measured when metrics are read.
	Store Store
	Pools func() []Pool
	Clock clock.PassiveClock
	// Allocations and Tokens, unless nil, are counted by the server.
	Allocations *Allocations
	Tokens      *Tokens
}

// New returns the metrics that source gathers, as the configuration shows them.
func New(source prometheus.Gatherer, c Config) prometheus.Gatherer {
	limit, told := newLimit(c.IsBuiltIn, c.Exists), &sync.Map{}
	usage := &usage{store: c.Store, pools: c.Pools, clock: c.Clock}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		gathered, err := source.Gather()
		if err != nil {
			return nil, err
		}
		families := make(map[string]*dto.MetricFamily, len(gathered)+2)
		for _, f := range gathered {
			families[f.GetName()] = f
		}
		c.addBuildInfo(families)
		usage.add(families)
		if c.Allocations != nil {
			if err := c.Allocations.add(families); err != nil {
				return nil, err
			}
		}
		if c.Tokens != nil {
			if err := c.Tokens.add(families); err != nil {
				return nil, err
			}
		}
		shown := gathered[:0]
		for _, name := range slices.Sorted(maps.Keys(families)) {
			f := families[name]
			from, isShown := c.describe(f)
			if !isShown {
				continue
			}
			if from != nil && c.Deprecated != nil {
				if _, isTold := told.LoadOrStore(name, true); !isTold {
					c.Deprecated(name, *from)
				}
			}
			if name == requestedDeprecatedAPIs {
				f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool { return c.Silent(versionResource(m), label(m, "subresource")) })
			}
			limit.apply(f)
			if len(f.Metric) > 0 {
				shown = append(shown, f)
			}
		}
		return shown, nil
	})
}

// requestedDeprecatedAPIs has a series for each deprecated version that was
// requested (document 2, section 9, rule 8). The libraries deprecate by their own
// release.
const requestedDeprecatedAPIs = "apiserver_requested_deprecated_apis"

func versionResource(m *dto.Metric) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: label(m, "group"), Version: label(m, "version"), Resource: label(m, "resource")}
}

// addBuildInfo adds the version that clients see at /version. The libraries would
// report their own.
func (c Config) addBuildInfo(families map[string]*dto.MetricFamily) {
	v := c.Version
	const name = "kubernetes_build_info"
	families[name] = gauge(name,
		"[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which the server was built, and platform on which it is running.",
		gaugeOf(1, "build_date", v.BuildDate, "compiler", v.Compiler, "git_commit", v.GitCommit, "git_tree_state", v.GitTreeState,
			"git_version", v.GitVersion, "go_version", v.GoVersion, "major", v.Major, "minor", v.Minor, "platform", v.Platform))
}

// label returns the value of a label, or "" if the metric does not have it.
func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
