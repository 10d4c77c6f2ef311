package podgroupprotection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestGroupIsProtectedWhileAPodOfItIsActive(t *testing.T) {
	member := func(group string, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"},
			Spec: corev1.PodSpec{SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &group}}, Status: corev1.PodStatus{Phase: phase}}
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		rule string
		pod  *corev1.Pod
		// cached is whether the cache has the pod.
		cached, used bool
	}{
		{"a pod waits for a node", member("g", corev1.PodPending), true, true},
		{"a pod runs", member("g", corev1.PodRunning), true, true},
		{"a pod runs that the cache does not have yet", member("g", corev1.PodRunning), false, true},
		{"its pod has succeeded", member("g", corev1.PodSucceeded), true, false},
		{"its pod has failed", member("g", corev1.PodFailed), true, false},
		{"the pod is of another group", member("other", corev1.PodRunning), true, false},
		{"the pod has no group", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}, true, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			group := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", Finalizers: []string{finalizer}}}
			index := activePods()
			server := func(objects ...client.Object) client.Client {
				return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(index.Object, index.Name, index.Values).Build()
			}
			c := server(group)
			if test.cached {
				c = server(group, test.pod)
			}
			r := &reconciler{c, server(test.pod)}
			for _, deleted := range []bool{false, true} {
				if deleted {
					if err := c.Delete(t.Context(), group); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(group)}); err != nil {
					t.Fatal(err)
				}
				err := c.Get(t.Context(), client.ObjectKeyFromObject(group), group)
				if there := err == nil; there != (test.used || !deleted) || err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("deleted: %v, the group is there: %v: %v", deleted, there, err)
				}
			}
		})
	}
}
