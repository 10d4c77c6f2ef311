package metrics

import (
	"slices"
	"strings"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// maxCustomResources is the number of custom resources that have series of their
// own: those that exist when they have metrics first. Anyone can request resources that do not
// exist, which have metrics, too.
const maxCustomResources = 50

// maxConfigurations is the number of webhooks, policies and bindings of policies that have
// series of their own: those that are used first.
const maxConfigurations = 100

// otherResources is the label resource of the series that count the custom
// resources beyond the greatest number, and the label of configurations beyond theirs.
const otherResources = "other"

// webhookMetrics is the prefix of the families whose label name is that of a webhook.
const webhookMetrics = "apiserver_admission_webhook_"

// resourceLabels are the labels whose values are as many as there are resources.
var resourceLabels = []string{"group", "version", "resource", "crd", "crd_name"}

// limit bounds the number of series. Counters and gauges have series for each
// resource; custom resources beyond a number share series. A histogram is some 10 to
// 25 lines of text, and has series for all resources together. Webhooks and policies
// beyond a number share series, too.
type limit struct {
	isBuiltIn, exists func(schema.GroupResource) bool

	mu sync.Mutex
	// custom are the custom resources with series of their own. None is ever
	// removed, since a counter must not decrease.
	custom map[schema.GroupResource]bool
	// configurations are the webhooks, policies and bindings with series of their own, by
	// label and value.
	configurations map[string]map[string]bool
	// least are the last values of the shared series of counters: a resource that is defined
	// after the first requests for it leaves them.
	least map[string]float64
}

func newLimit(isBuiltIn, exists func(schema.GroupResource) bool) *limit {
	return &limit{isBuiltIn: isBuiltIn, exists: exists, custom: map[schema.GroupResource]bool{},
		configurations: map[string]map[string]bool{}, least: map[string]float64{}}
}

// apply bounds a family's series.
func (l *limit) apply(f *dto.MetricFamily) {
	if len(f.Metric) == 0 {
		return
	}
	isOfWebhooks := strings.HasPrefix(f.GetName(), webhookMetrics)
	switch f.GetType() {
	case dto.MetricType_HISTOGRAM:
		f.Metric = merge(f.Metric, func(m *dto.Metric) []*dto.LabelPair {
			return l.bounded(withoutResource(m), isOfWebhooks)
		}, addHistogram)
	case dto.MetricType_COUNTER:
		f.Metric = merge(f.Metric, func(m *dto.Metric) []*dto.LabelPair {
			return l.bounded(l.shared(m), isOfWebhooks)
		}, func(sum, m *dto.Metric) {
			sum.Counter.Value = ptr.To(sum.Counter.GetValue() + m.Counter.GetValue())
		})
		l.keepRising(f)
	case dto.MetricType_GAUGE:
		if strings.HasPrefix(f.GetHelp(), "[ALPHA]") {
			// A sum of versions or capacities says nothing.
			f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool { return l.isSurplus(m) })
			return
		}
		f.Metric = merge(f.Metric, l.shared, func(sum, m *dto.Metric) {
			sum.Gauge.Value = ptr.To(sum.Gauge.GetValue() + m.Gauge.GetValue())
		})
	}
}

// keepRising gives the shared series of a counter at least their last values.
func (l *limit) keepRising(f *dto.MetricFamily) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range f.Metric {
		if label(m, "resource") != otherResources {
			continue
		}
		key := f.GetName() + keyOf(m.Label)
		l.least[key] = max(l.least[key], m.Counter.GetValue())
		m.Counter.Value = ptr.To(l.least[key])
	}
}

// merge replaces metrics with equal labels, after relabel, by their sum. relabel
// returns the labels of a metric as they are if it has no others.
func merge(metrics []*dto.Metric, relabel func(*dto.Metric) []*dto.LabelPair, add func(sum, m *dto.Metric)) []*dto.Metric {
	sums := map[string]*dto.Metric{}
	kept := metrics[:0]
	for _, m := range metrics {
		m.Label = relabel(m)
		key := keyOf(m.Label)
		if sum, ok := sums[key]; ok {
			add(sum, m)
			continue
		}
		sums[key] = m
		kept = append(kept, m)
	}
	return kept
}

func keyOf(labels []*dto.LabelPair) string {
	var b strings.Builder
	for _, l := range labels {
		b.WriteString(l.GetName())
		b.WriteByte(0xff) // is in no label
		b.WriteString(l.GetValue())
		b.WriteByte(0xff)
	}
	return b.String()
}

// withoutResource returns the labels that do not name a resource.
func withoutResource(m *dto.Metric) []*dto.LabelPair {
	isOfResource := func(l *dto.LabelPair) bool { return slices.Contains(resourceLabels, l.GetName()) }
	if !slices.ContainsFunc(m.Label, isOfResource) {
		return m.Label
	}
	return slices.DeleteFunc(slices.Clone(m.Label), isOfResource)
}

// shared returns the labels with otherResources instead of a surplus resource.
func (l *limit) shared(m *dto.Metric) []*dto.LabelPair {
	if !l.isSurplus(m) {
		return m.Label
	}
	labels := withoutResource(m)
	at, _ := slices.BinarySearchFunc(labels, "resource", func(p *dto.LabelPair, name string) int { return strings.Compare(p.GetName(), name) })
	return slices.Insert(labels, at, &dto.LabelPair{Name: ptr.To("resource"), Value: ptr.To(otherResources)})
}

// bounded returns labels with otherResources instead of the names of surplus webhooks,
// policies and bindings.
func (l *limit) bounded(labels []*dto.LabelPair, isOfWebhooks bool) []*dto.LabelPair {
	l.mu.Lock()
	defer l.mu.Unlock()
	isCopy := false
	for i, label := range labels {
		name := label.GetName()
		if name != "policy" && name != "policy_binding" && (name != "name" || !isOfWebhooks) {
			continue
		}
		known := l.configurations[name]
		if known == nil {
			known = map[string]bool{}
			l.configurations[name] = known
		}
		switch {
		case known[label.GetValue()]:
		case len(known) < maxConfigurations:
			known[label.GetValue()] = true
		default:
			if !isCopy { // The labels are those of the registry.
				labels, isCopy = slices.Clone(labels), true
			}
			labels[i] = &dto.LabelPair{Name: label.Name, Value: ptr.To(otherResources)}
		}
	}
	return labels
}

// isSurplus reports whether a metric is of a custom resource that has no series of
// its own.
func (l *limit) isSurplus(m *dto.Metric) bool {
	resource, ok := resourceOf(m)
	if !ok || l.isBuiltIn(resource) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.custom[resource] {
		return false
	}
	if len(l.custom) >= maxCustomResources || !l.exists(resource) {
		return true
	}
	l.custom[resource] = true
	return false
}

// resourceOf returns the resource that a metric's labels name. It is in one of the
// forms group="apps",resource="deployments", resource="deployments.apps" and
// crd="deployments.apps".
func resourceOf(m *dto.Metric) (schema.GroupResource, bool) {
	name := label(m, "resource")
	if name == "" {
		name = label(m, "crd")
	}
	if name == "" {
		name = label(m, "crd_name")
	}
	resource := schema.ParseGroupResource(name)
	if group := label(m, "group"); group != "" {
		resource = schema.GroupResource{Group: group, Resource: name}
	}
	return resource, name != ""
}

// addHistogram adds m to sum. Series of one family have the same buckets.
func addHistogram(sum, m *dto.Metric) {
	s, h := sum.Histogram, m.Histogram
	s.SampleCount = ptr.To(s.GetSampleCount() + h.GetSampleCount())
	s.SampleSum = ptr.To(s.GetSampleSum() + h.GetSampleSum())
	for i, b := range s.Bucket {
		if i < len(h.Bucket) {
			b.CumulativeCount = ptr.To(b.GetCumulativeCount() + h.Bucket[i].GetCumulativeCount())
		}
	}
}
