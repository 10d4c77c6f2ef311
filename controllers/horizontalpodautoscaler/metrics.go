package horizontalpodautoscaler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	customv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/horizontalpodautoscaler/decide"
)

// metrics reads the metrics APIs. The usage of all pods of a namespace is one request,
// which serves all autoscalers of the namespace for a while.
type metrics struct {
	client client.Reader
	custom custom_metrics.CustomMetricsClient
	// versions has the version of custom.metrics.k8s.io that custom uses.
	versions custom_metrics.AvailableAPIsGetter
	external external_metrics.ExternalMetricsClient
	clock    clock.PassiveClock
	// age is how long a response is used.
	age time.Duration

	mu         sync.Mutex
	namespaces map[string]*usage
	// discovered is when the version was last asked for because of an error.
	discovered time.Time
}

// usage is the usage of the pods of a namespace. Its mutex is held while it is read.
type usage struct {
	mu   sync.Mutex
	at   time.Time
	pods map[string]*metricsv1beta1.PodMetrics
}

func newMetrics(env *controller.Env, age time.Duration) (*metrics, error) {
	config := rest.CopyConfig(env.Manager.GetConfig())
	config.UserAgent += "/horizontalpodautoscaler"
	return metricsOf(config, env.Live, env.Client.RESTMapper(), env.Clock, age)
}

// metricsOf returns metrics that reads the usage of pods with live, and other metrics
// from the server of config.
func metricsOf(config *rest.Config, live client.Reader, mapper meta.RESTMapper, clock clock.PassiveClock, age time.Duration) (*metrics, error) {
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	external, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of external metrics: %w", err)
	}
	versions := custom_metrics.NewAvailableAPIsGetter(found)
	return &metrics{
		client: live, external: external, clock: clock, age: age, namespaces: map[string]*usage{},
		custom: custom_metrics.NewForConfig(config, mapper, versions), versions: versions,
	}, nil
}

var errNoResourceMetrics = errors.New("no metrics returned from resource metrics API")

// resource returns the usage of a resource by pod, of all containers or the one with
// the name. A pod of which the usage of a container is not known is left out, as is one
// without the container: those that a rollout has not replaced yet do not stop the others
// from counting.
func (m *metrics) resource(ctx context.Context, namespace string, pods []*corev1.Pod, resource corev1.ResourceName, container string) (map[string]decide.Sample, error) {
	all, err := m.usage(ctx, namespace)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	samples := map[string]decide.Sample{}
	found := false
	for _, pod := range pods {
		of := all[pod.Name]
		if of == nil {
			continue
		}
		found = true
		sample := decide.Sample{Timestamp: of.Timestamp.Time, Window: of.Window.Duration}
		complete, matched := true, false
		for i := range of.Containers {
			c := &of.Containers[i]
			if container != "" && c.Name != container {
				continue
			}
			matched = true
			used, ok := c.Usage[resource]
			complete = complete && ok
			sample.Value += used.MilliValue()
		}
		if complete && matched {
			samples[pod.Name] = sample
		}
	}
	if !found {
		return nil, errNoResourceMetrics
	}
	return samples, nil
}

// usage returns the usage of the pods of a namespace. Concurrent calls share one
// request.
func (m *metrics) usage(ctx context.Context, namespace string) (map[string]*metricsv1beta1.PodMetrics, error) {
	now := m.clock.Now()
	m.mu.Lock()
	of := m.namespaces[namespace]
	if of == nil {
		of = &usage{}
		m.namespaces[namespace] = of
	}
	m.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	if of.pods != nil && now.Sub(of.at) < m.age {
		return of.pods, nil
	}
	var list metricsv1beta1.PodMetricsList
	if err := m.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	of.at, of.pods = now, make(map[string]*metricsv1beta1.PodMetrics, len(list.Items))
	for i := range list.Items {
		of.pods[list.Items[i].Name] = &list.Items[i]
	}
	return of.pods, nil
}

// forget drops the usage of a namespace without autoscalers.
func (m *metrics) forget(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.namespaces, namespace)
}

// perPod returns a custom metric of pods.
func (m *metrics) perPod(namespace string, pods labels.Selector, metric autoscalingv2.MetricIdentifier) (map[string]decide.Sample, error) {
	selector, err := selectorOf(metric)
	if err != nil {
		return nil, err
	}
	list, err := m.custom.NamespacedMetrics(namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, pods, metric.Name, selector)
	switch {
	case err != nil:
		return nil, m.customFailed(err)
	case len(list.Items) == 0:
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	samples := map[string]decide.Sample{}
	for i := range list.Items {
		samples[list.Items[i].DescribedObject.Name] = sampleOf(&list.Items[i])
	}
	return samples, nil
}

// customFailed returns the error of a read of a custom metric. The server of these metrics
// may have been replaced by one with another version: the next read asks for the version
// again, unless an error was the reason to do so within the age.
func (m *metrics) customFailed(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.clock.Now(); now.Sub(m.discovered) >= m.age {
		m.discovered = now
		m.versions.Invalidate()
	}
	return fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
}

// selectorOf returns the selector of the values of a metric.
func selectorOf(metric autoscalingv2.MetricIdentifier) (labels.Selector, error) {
	if metric.Selector == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(metric.Selector)
}

func sampleOf(v *customv1beta2.MetricValue) decide.Sample {
	window := time.Minute // what a value without a window stands for
	if v.WindowSeconds != nil {
		window = time.Duration(*v.WindowSeconds) * time.Second
	}
	return decide.Sample{Value: v.Value.MilliValue(), Timestamp: v.Timestamp.Time, Window: window}
}

// object returns a custom metric of an object.
func (m *metrics) object(namespace string, of autoscalingv2.CrossVersionObjectReference, metric autoscalingv2.MetricIdentifier) (int64, error) {
	gv, err := schema.ParseGroupVersion(of.APIVersion)
	if err != nil {
		return 0, err
	}
	selector, err := selectorOf(metric)
	if err != nil {
		return 0, err
	}
	kind := schema.GroupKind{Group: gv.Group, Kind: of.Kind}
	var value *customv1beta2.MetricValue
	if kind.Kind == "Namespace" && kind.Group == "" {
		value, err = m.custom.RootScopedMetrics().GetForObject(kind, namespace, metric.Name, selector)
	} else {
		value, err = m.custom.NamespacedMetrics(namespace).GetForObject(kind, of.Name, metric.Name, selector)
	}
	if err != nil {
		return 0, m.customFailed(err)
	}
	return value.Value.MilliValue(), nil
}

// sum returns the sum of the values of an external metric, at most the largest number.
func (m *metrics) sum(namespace string, metric autoscalingv2.MetricIdentifier) (int64, error) {
	selector, err := selectorOf(metric)
	if err != nil {
		return 0, err
	}
	list, err := m.external.NamespacedMetrics(namespace).List(metric.Name, selector)
	switch {
	case err != nil:
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	case len(list.Items) == 0:
		return 0, errors.New("no metrics returned from external metrics API")
	}
	var sum int64
	for i := range list.Items {
		value := list.Items[i].Value.MilliValue()
		if value > 0 && sum > math.MaxInt64-value {
			return math.MaxInt64, nil
		}
		sum += value
	}
	return sum, nil
}
