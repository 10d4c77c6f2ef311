package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource"
)

// componentStatuses reports the health of etcd. The API server does not know where
// the controllers and the scheduler run; their leases show that they do.
var componentStatuses = resource.Computed[*corev1.ComponentStatus]{
	Name: "componentstatuses", ShortNames: []string{"cs"},
	Columns: []resource.Column[*corev1.ComponentStatus]{
		resource.Name[*corev1.ComponentStatus](),
		{Name: "Status", Description: "Status of the component conditions", Value: func(s *corev1.ComponentStatus) any {
			if healthCondition(s).Status == corev1.ConditionTrue {
				return "Healthy"
			}
			return "Unhealthy"
		}},
		{Name: "Message", Description: "Message of the component conditions", Value: func(s *corev1.ComponentStatus) any { return healthCondition(s).Message }},
		{Name: "Error", Description: "Error of the component conditions", Value: func(s *corev1.ComponentStatus) any { return healthCondition(s).Error }},
	},
	Get: func(ctx context.Context, env *resource.Env, _, name string) (*corev1.ComponentStatus, error) {
		if name != etcdComponent {
			return nil, apierrors.NewNotFound(corev1.Resource("componentstatuses"), name)
		}
		return etcdStatus(ctx, env), nil
	},
	List: func(ctx context.Context, env *resource.Env, selection resource.Selection) ([]*corev1.ComponentStatus, error) {
		if !selection.Selects(&metav1.ObjectMeta{Name: etcdComponent}) {
			return nil, nil
		}
		return []*corev1.ComponentStatus{etcdStatus(ctx, env)}, nil
	},
}

// etcdComponent is Kubernetes' name of the first etcd that a server uses.
const etcdComponent = "etcd-0"

func etcdStatus(ctx context.Context, env *resource.Env) *corev1.ComponentStatus {
	health := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if err := env.Etcd(ctx); err != nil {
		health.Status, health.Message, health.Error = corev1.ConditionFalse, "", err.Error()
	}
	return &corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: etcdComponent}, Conditions: []corev1.ComponentCondition{health}}
}

func healthCondition(s *corev1.ComponentStatus) corev1.ComponentCondition {
	for _, c := range s.Conditions {
		if c.Type == corev1.ComponentHealthy {
			return c
		}
	}
	return corev1.ComponentCondition{}
}
