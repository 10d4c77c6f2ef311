package metrics

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"svc.dev/svc/apis/resource"
)

// nodes declares the usage of nodes.
func nodes(s *summaries) resource.Computed[*metricsv1beta1.NodeMetrics] {
	return resource.Computed[*metricsv1beta1.NodeMetrics]{
		Name: "nodes", Singular: "node",
		Columns: columns(
			func(m *metricsv1beta1.NodeMetrics) corev1.ResourceList { return m.Usage },
			func(m *metricsv1beta1.NodeMetrics) metav1.Duration { return m.Window },
		),
		Get: func(ctx context.Context, env *resource.Env, _, name string) (*metricsv1beta1.NodeMetrics, error) {
			obj, err := env.Objects(corev1.Resource("nodes")).Get(ctx, "", name)
			if err != nil {
				return nil, err
			}
			found, err := s.nodes(ctx, env, []*corev1.Node{obj.(*corev1.Node)})
			if err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, apierrors.NewNotFound(metricsv1beta1.Resource("nodemetrics"), name)
			}
			return found[0], nil
		},
		List: func(ctx context.Context, env *resource.Env, selection resource.Selection) ([]*metricsv1beta1.NodeMetrics, error) {
			selected, err := list[*corev1.Node](ctx, env, "nodes", selection)
			if err != nil {
				return nil, err
			}
			return s.nodes(ctx, env, selected)
		},
	}
}

// list returns the selected objects of a core resource.
func list[T metav1.Object](ctx context.Context, env *resource.Env, name string, selection resource.Selection) ([]T, error) {
	objects, err := env.Objects(corev1.Resource(name)).ListCached(ctx, selection.Namespace, selection.Labels)
	if err != nil {
		return nil, err
	}
	var selected []T
	for _, obj := range objects {
		if t := obj.(T); selection.Selects(t) {
			selected = append(selected, t)
		}
	}
	return selected, nil
}

// nodes returns the metrics of the nodes whose agents have answered, in the order
// of nodes.
func (s *summaries) nodes(ctx context.Context, env *resource.Env, nodes []*corev1.Node) ([]*metricsv1beta1.NodeMetrics, error) {
	fetched, err := s.get(ctx, env, nodes)
	if err != nil {
		return nil, err
	}
	var metrics []*metricsv1beta1.NodeMetrics
	for _, n := range nodes {
		summary := fetched[n.Name]
		if summary == nil {
			continue
		}
		if used := usage(summary.node.CPU, summary.node.Memory); used != nil {
			metrics = append(metrics, &metricsv1beta1.NodeMetrics{
				ObjectMeta: metadataFor(n, env.Clock.Now()), Timestamp: summary.node.CPU.Time, Window: metav1.Duration{Duration: window}, Usage: used,
			})
		}
	}
	return metrics, nil
}
