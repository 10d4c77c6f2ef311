package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is one of the two kinds. All decisions are made on replica sets; a
// replication controller is converted to one.
type kind struct {
	name            string // of the controller
	component       string // in events
	group, resource string
	// terminating is set if the status counts terminating pods.
	terminating bool

	empty func() client.Object
	// view returns the object as a replica set that shares its memory.
	view func(client.Object) *appsv1.ReplicaSet
	// setStatus changes the object.
	setStatus func(client.Object, appsv1.ReplicaSetStatus)
	// list returns views that share their memory with the cache.
	list func(ctx context.Context, c client.Reader, options ...client.ListOption) ([]*appsv1.ReplicaSet, error)
}

func replicaSets() kind {
	return kind{
		name: "replicaset", component: "replicaset-controller", group: "apps", resource: "replicasets", terminating: true,
		empty:     func() client.Object { return &appsv1.ReplicaSet{} },
		view:      func(obj client.Object) *appsv1.ReplicaSet { return obj.(*appsv1.ReplicaSet) },
		setStatus: func(obj client.Object, status appsv1.ReplicaSetStatus) { obj.(*appsv1.ReplicaSet).Status = status },
		list: func(ctx context.Context, c client.Reader, options ...client.ListOption) ([]*appsv1.ReplicaSet, error) {
			var list appsv1.ReplicaSetList
			if err := c.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
				return nil, err
			}
			sets := make([]*appsv1.ReplicaSet, len(list.Items))
			for i := range list.Items {
				sets[i] = &list.Items[i]
			}
			return sets, nil
		},
	}
}

func replicationControllers() kind {
	return kind{
		name: "replicationcontroller", component: "replication-controller", resource: "replicationcontrollers",
		empty: func() client.Object { return &corev1.ReplicationController{} },
		view:  func(obj client.Object) *appsv1.ReplicaSet { return asReplicaSet(obj.(*corev1.ReplicationController)) },
		setStatus: func(obj client.Object, status appsv1.ReplicaSetStatus) {
			obj.(*corev1.ReplicationController).Status = asControllerStatus(status)
		},
		list: func(ctx context.Context, c client.Reader, options ...client.ListOption) ([]*appsv1.ReplicaSet, error) {
			var list corev1.ReplicationControllerList
			if err := c.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
				return nil, err
			}
			sets := make([]*appsv1.ReplicaSet, len(list.Items))
			for i := range list.Items {
				sets[i] = asReplicaSet(&list.Items[i])
			}
			return sets, nil
		},
	}
}

func asReplicaSet(c *corev1.ReplicationController) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: c.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        c.Spec.Replicas,
			MinReadySeconds: c.Spec.MinReadySeconds,
			Selector:        &metav1.LabelSelector{MatchLabels: c.Spec.Selector},
			Template:        ptr.Deref(c.Spec.Template, corev1.PodTemplateSpec{}),
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: c.Status.Replicas, FullyLabeledReplicas: c.Status.FullyLabeledReplicas,
			ReadyReplicas: c.Status.ReadyReplicas, AvailableReplicas: c.Status.AvailableReplicas,
			ObservedGeneration: c.Status.ObservedGeneration,
		},
	}
	for _, condition := range c.Status.Conditions {
		rs.Status.Conditions = append(rs.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(condition.Type), Status: condition.Status,
			LastTransitionTime: condition.LastTransitionTime, Reason: condition.Reason, Message: condition.Message,
		})
	}
	return rs
}

func asControllerStatus(s appsv1.ReplicaSetStatus) corev1.ReplicationControllerStatus {
	status := corev1.ReplicationControllerStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas,
		ReadyReplicas: s.ReadyReplicas, AvailableReplicas: s.AvailableReplicas,
		ObservedGeneration: s.ObservedGeneration,
	}
	for _, condition := range s.Conditions {
		status.Conditions = append(status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(condition.Type), Status: condition.Status,
			LastTransitionTime: condition.LastTransitionTime, Reason: condition.Reason, Message: condition.Message,
		})
	}
	return status
}

// selector returns the selector of a replica set. An empty selector selects
// nothing, so that no pod is adopted by mistake.
func selector(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	s, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err == nil && s.Empty() {
		return labels.Nothing(), nil
	}
	return s, err
}
