package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

var podColumns = append([]resource.Column[*corev1.Pod]{
	resource.Name[*corev1.Pod](),
	{Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.",
		Value: func(p *corev1.Pod) any { s := summarize(p); return fmt.Sprintf("%d/%d", s.ready, s.containers) }},
	{Name: "Status", Description: "The aggregate status of the containers in this pod.",
		Value: func(p *corev1.Pod) any { return summarize(p).status }},
	{Name: "Restarts", Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
		Value: func(p *corev1.Pod) any { return summarize(p).restartsAt }},
	resource.Age[*corev1.Pod](),
}, resource.Wide(
	resource.Column[*corev1.Pod]{Name: "IP", Description: corev1.PodStatus{}.SwaggerDoc()["podIP"],
		Value: func(p *corev1.Pod) any { return orNone(p.Status.PodIP) }},
	resource.Column[*corev1.Pod]{Name: "Node", Description: corev1.PodSpec{}.SwaggerDoc()["nodeName"],
		Value: func(p *corev1.Pod) any { return orNone(p.Spec.NodeName) }},
	resource.Column[*corev1.Pod]{Name: "Nominated Node", Description: corev1.PodStatus{}.SwaggerDoc()["nominatedNodeName"],
		Value: func(p *corev1.Pod) any { return orNone(p.Status.NominatedNodeName) }},
	resource.Column[*corev1.Pod]{Name: "Readiness Gates", Description: corev1.PodSpec{}.SwaggerDoc()["readinessGates"],
		Value: func(p *corev1.Pod) any { return readinessGates(p) }},
)...)

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if podspec.IsConditionTrue(&p.Status, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}
