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

// pods tell what the containers of pods use, by asking the agents of the nodes
// on which they run.
func pods(agents *survey) resource.Computed[*metricsv1beta1.PodMetrics] {
	return resource.Computed[*metricsv1beta1.PodMetrics]{
		Name: "pods", Singular: "pod", Namespaced: true,
		Columns: columns(total, func(m *metricsv1beta1.PodMetrics) metav1.Duration { return m.Window }),
		Get: func(ctx context.Context, env *resource.Env, namespace, name string) (*metricsv1beta1.PodMetrics, error) {
			obj, err := env.Objects(corev1.Resource("pods")).Get(ctx, namespace, name)
			if err != nil {
				return nil, err
			}
			found, err := agents.pods(ctx, env, []*corev1.Pod{obj.(*corev1.Pod)})
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
			return agents.pods(ctx, env, selected)
		},
	}
}

// total is what the containers of a pod use together.
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

// pods is what is known about pods, in their order.
func (s *survey) pods(ctx context.Context, env *resource.Env, pods []*corev1.Pod) ([]*metricsv1beta1.PodMetrics, error) {
	nodes, err := nodesOf(ctx, env, pods)
	if err != nil {
		return nil, err
	}
	answers, err := s.ask(ctx, env.Agents, nodes)
	if err != nil {
		return nil, err
	}
	var known []*metricsv1beta1.PodMetrics
	for _, p := range pods {
		a := answers[p.Spec.NodeName]
		if a == nil || !runs(p) {
			continue
		}
		used := a.pods[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}]
		if used == nil || !means(used.PodRef.UID, p) {
			continue
		}
		if m := podMetrics(used); m != nil {
			m.ObjectMeta = about(p)
			known = append(known, m)
		}
	}
	return known, nil
}

// nodesOf are the nodes on which pods run, each once. One that is not there
// has no agent to ask.
func nodesOf(ctx context.Context, env *resource.Env, pods []*corev1.Pod) ([]*corev1.Node, error) {
	names := sets.New[string]()
	for _, p := range pods {
		if runs(p) {
			names.Insert(p.Spec.NodeName)
		}
	}
	objects := env.Objects(corev1.Resource("nodes"))
	var nodes []*corev1.Node
	if names.Len() <= few {
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
	all, err := objects.List(ctx, "", labels.Everything())
	for _, obj := range all {
		if n := obj.(*corev1.Node); names.Has(n.Name) {
			nodes = append(nodes, n)
		}
	}
	return nodes, err
}

// few is how many nodes are looked up one by one.
const few = 3

// runs reports whether a pod may have running containers.
func runs(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && !podspec.IsTerminal(p.Status.Phase)
}

// means reports whether an agent's pod is this one, and not one of the same
// name that was there before. An agent knows a static pod by the UID that it
// gave it, which its mirror shows.
func means(uid string, p *corev1.Pod) bool {
	return uid == string(p.UID) || uid == p.Annotations[corev1.MirrorPodAnnotationKey]
}

// podMetrics is what a pod's containers use, or nil as long as that of one of
// them is not known: the sum would mislead. The time is that of the earliest
// sample.
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
