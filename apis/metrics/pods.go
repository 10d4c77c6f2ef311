package metrics

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// pods declares the usage of the containers of pods.
func pods(s *summaries) resource.Computed[*metricsv1beta1.PodMetrics] {
	return resource.Computed[*metricsv1beta1.PodMetrics]{
		Name: "pods", Singular: "pod", Namespaced: true,
		Columns: columns(total, func(m *metricsv1beta1.PodMetrics) metav1.Duration { return m.Window }),
		Get: func(ctx context.Context, env *resource.Env, namespace, name string) (*metricsv1beta1.PodMetrics, error) {
			obj, err := env.Objects(corev1.Resource("pods")).Get(ctx, namespace, name)
			if err != nil {
				return nil, err
			}
			found, err := s.pods(ctx, env, []*corev1.Pod{obj.(*corev1.Pod)})
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, apierrors.NewNotFound(metricsv1beta1.Resource("podmetrics"), fmt.Sprintf("%s/%s", namespace, name))
			}
			return found[0], nil
		},
		List: func(ctx context.Context, env *resource.Env, selection resource.Selection) ([]*metricsv1beta1.PodMetrics, error) {
			selected, err := list[*corev1.Pod](ctx, env, "pods", selection)
			if err != nil {
				return nil, err
			}
			return s.pods(ctx, env, selected)
		},
	}
}

// total returns the sum of the usage of a pod's containers.
func total(m *metricsv1beta1.PodMetrics) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, c := range m.Containers {
		for name, used := range c.Usage {
			q := sum[name]
			q.Add(used)
			sum[name] = q
		}
	}
	return sum
}

// pods returns the metrics of the pods whose nodes' agents have answered, in the
// order of pods.
func (s *summaries) pods(ctx context.Context, env *resource.Env, pods []*corev1.Pod) ([]*metricsv1beta1.PodMetrics, error) {
	nodes, err := nodesOf(ctx, env, pods)
	if err != nil {
		return nil, err
	}
	fetched, err := s.get(ctx, env, nodes)
	if err != nil {
		return nil, err
	}
	var metrics []*metricsv1beta1.PodMetrics
	for _, p := range pods {
		summary := fetched[p.Spec.NodeName]
		if summary == nil || !mayRun(p) {
			continue
		}
		stats := summary.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
		if stats == nil || !hasUID(p, stats.PodRef.UID) {
			continue
		}
		if m := podMetrics(stats); m != nil {
			m.ObjectMeta = metadataFor(p, env.Clock.Now())
			metrics = append(metrics, m)
		}
	}
	return metrics, nil
}

// nodesOf returns the nodes on which the pods run, each once. A node that does
// not exist is left out.
func nodesOf(ctx context.Context, env *resource.Env, pods []*corev1.Pod) ([]*corev1.Node, error) {
	names := sets.New[string]()
	for _, p := range pods {
		if mayRun(p) {
			names.Insert(p.Spec.NodeName)
		}
	}
	objects := env.Objects(corev1.Resource("nodes"))
	var nodes []*corev1.Node
	if names.Len() <= maxGets {
		for name := range names {
			obj, err := objects.Get(ctx, "", name)
			if err == nil {
				nodes = append(nodes, obj.(*corev1.Node))
			} else if !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
		return nodes, nil
	}
	all, err := objects.ListCached(ctx, "", labels.Everything())
	for _, obj := range all {
		if n := obj.(*corev1.Node); names.Has(n.Name) {
			nodes = append(nodes, n)
		}
	}
	return nodes, err
}

// maxGets is the greatest number of nodes that are read one by one instead of by
// a list.
const maxGets = 3

// mayRun reports whether the pod may have running containers.
func mayRun(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !podspec.IsTerminal(p.Status.Phase)
}

// hasUID reports whether the agent's pod with the UID is this pod, and not an
// earlier one of the same name. The agent reports a static pod by the UID from
// its source, which is an annotation of the mirror pod.
func hasUID(p *corev1.Pod, uid string) bool {
	return uid == string(p.UID) || uid == p.Annotations[corev1.MirrorPodAnnotationKey]
}

// podMetrics returns the usage of a pod's containers, or nil if that of one
// container has not been measured yet: the sum would be too low. The timestamp
// is that of the earliest sample.
func podMetrics(p *statsapi.PodStats) *metricsv1beta1.PodMetrics {
	m := &metricsv1beta1.PodMetrics{Window: metav1.Duration{Duration: window}}
	for i := range p.Containers {
		c := &p.Containers[i]
		used := usage(c.CPU, c.Memory)
		if used == nil {
			return nil
		}
		if m.Timestamp.IsZero() || c.CPU.Time.Before(&m.Timestamp) {
			m.Timestamp = c.CPU.Time
		}
		m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics{Name: c.Name, Usage: used})
	}
	if len(m.Containers) == 0 {
		return nil
	}
	return m
}
