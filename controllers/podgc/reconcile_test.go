package podgc

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// fixture is a reconciler with a fake clock. Its live reader and its cache have
// different objects, as if the cache were behind.
type fixture struct {
	*reconciler
	cache, server client.Client
	clock         time.Time
}

func newFixture(objects ...client.Object) *fixture {
	b := &fixture{
		cache: fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&corev1.Pod{}).WithObjects(objects...).
			WithIndex(&corev1.Pod{}, index.PodsByNode().Name, index.PodsByNode().Values).
			WithIndex(&corev1.Pod{}, terminatedIndex().Name, terminatedIndex().Values).Build(),
		server: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(),
		clock:  time.Unix(1_000_000, 0),
	}
	b.reconciler = &reconciler{
		client: b.cache, live: b.server, now: func() time.Time { return b.clock },
		threshold: 2, quarantine: quarantine, missing: map[string]time.Time{},
	}
	return b
}

func podOn(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", Finalizers: []string{"example.com/hold"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// sync reconciles the node and returns after which time it is requeued, and the
// pod.
func (b *fixture) sync(t *testing.T, node, name string) (time.Duration, *corev1.Pod) {
	t.Helper()
	result, err := b.Reconcile(t.Context(), request{node: node})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := b.cache.Get(context.Background(), client.ObjectKey{Namespace: "ns", Name: name}, pod); err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter, pod
}

func TestOrphanedPodIsDeletedAfterTheQuarantine(t *testing.T) {
	b := newFixture(podOn("gone", "pod"))
	if after, pod := b.sync(t, "gone", "pod"); after != quarantine || pod.DeletionTimestamp != nil {
		t.Errorf("a node that is just missing: requeued after %v, deleted %v", after, pod.DeletionTimestamp)
	}
	b.clock = b.clock.Add(quarantine - time.Second)
	if after, pod := b.sync(t, "gone", "pod"); after != time.Second || pod.DeletionTimestamp != nil {
		t.Errorf("a node that is missing for 39 s: requeued after %v, deleted %v", after, pod.DeletionTimestamp)
	}
	b.clock = b.clock.Add(time.Second)
	_, pod := b.sync(t, "gone", "pod")
	c := pods.Condition(pod, corev1.DisruptionTarget)
	if pod.DeletionTimestamp == nil || pod.Status.Phase != corev1.PodFailed || c == nil || c.Reason != "DeletionByPodGC" || c.Message != "PodGC: node no longer exists" {
		t.Errorf("a node that is missing for 40 s: %+v", pod)
	}
	if len(b.missing) != 0 {
		t.Errorf("left behind: %v", b.missing)
	}
}

func TestMissingNodeIsConfirmedByTheAPIServer(t *testing.T) {
	b := newFixture(podOn("late", "pod"))
	if err := b.server.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}}); err != nil {
		t.Fatal(err)
	}
	b.sync(t, "late", "pod")
	b.clock = b.clock.Add(quarantine)
	if after, pod := b.sync(t, "late", "pod"); after != quarantine || pod.DeletionTimestamp != nil {
		t.Errorf("a node that the cache does not know: requeued after %v, deleted %v", after, pod.DeletionTimestamp)
	}
}

func TestNodeThatComesBackKeepsItsPods(t *testing.T) {
	b := newFixture(podOn("node", "pod"))
	b.sync(t, "node", "pod")
	if err := b.cache.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}); err != nil {
		t.Fatal(err)
	}
	b.clock = b.clock.Add(quarantine)
	if after, pod := b.sync(t, "node", "pod"); after != 0 || pod.DeletionTimestamp != nil || len(b.missing) != 0 {
		t.Errorf("requeued after %v, deleted %v, missing %v", after, pod.DeletionTimestamp, b.missing)
	}
}

func TestTerminatedPodsAboveTheThresholdAreDeleted(t *testing.T) {
	var objects []client.Object
	for _, name := range []string{"a", "b", "c", "d"} {
		pod := podOn("node", name)
		pod.Finalizers, pod.Status.Phase = nil, corev1.PodSucceeded
		objects = append(objects, pod)
	}
	b := newFixture(objects...)
	if _, err := b.Reconcile(t.Context(), request{}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range objects {
		err := b.cache.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{})
		if gone := pod.GetName() < "c"; apierrors.IsNotFound(err) != gone {
			t.Errorf("%s: %v", pod.GetName(), err)
		}
	}
}
