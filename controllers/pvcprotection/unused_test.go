package pvcprotection

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/index"
)

func TestAClaimSaysSinceWhenNoPodUsesIt(t *testing.T) {
	byClaim := index.PodsByClaim()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}}}
	start := time.Unix(1e9, 0)
	now := start
	r := &unusedReconciler{now: func() time.Time { return now }}
	r.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(claim).WithStatusSubresource(claim, pod).
		WithIndex(byClaim.Object, byClaim.Name, byClaim.Values).Build()
	expect := func(when string, status corev1.ConditionStatus, since time.Duration) {
		t.Helper()
		key := client.ObjectKeyFromObject(claim)
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if err := r.client.Get(t.Context(), key, claim); err != nil {
			t.Fatal(err)
		}
		c := unused(claim)
		if c == nil || c.Status != status || !c.LastTransitionTime.Equal(&metav1.Time{Time: start.Add(since)}) {
			t.Errorf("%s: the condition is %+v, want %s since %s", when, c, status, since)
		}
		now = now.Add(time.Minute)
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)}); err != nil {
		t.Fatal(err)
	}
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil || unused(claim) != nil {
		t.Errorf("a claim that is not bound: %v, %v", unused(claim), err)
	}
	claim.Status.Phase = corev1.ClaimBound
	if err := r.client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	expect("a new claim", corev1.ConditionTrue, 0)
	expect("nothing has changed", corev1.ConditionTrue, 0)
	if err := r.client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expect("a pod that has no node yet", corev1.ConditionFalse, 2*time.Minute)
	expect("it is still there", corev1.ConditionFalse, 2*time.Minute)
	pod.Status.Phase = corev1.PodSucceeded
	if err := r.client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	expect("the pod has ended", corev1.ConditionTrue, 4*time.Minute)
}

func TestAPodThatIsDeletedUsesItsClaimsUntilNothingOfItRuns(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	running := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	stopped := []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}}
	deleted := &metav1.Time{Time: time.Unix(1e9, 0)}
	for _, test := range []struct {
		name    string
		deleted *metav1.Time
		status  corev1.PodStatus
		want    bool
	}{
		{"it has not started", nil, corev1.PodStatus{}, true},
		{"it has stopped, and is to start again", nil, corev1.PodStatus{ContainerStatuses: stopped}, true},
		{"it is deleted before it has started", deleted, corev1.PodStatus{}, false},
		{"it is deleted and runs", deleted, corev1.PodStatus{ContainerStatuses: running}, true},
		{"it is deleted and its sidecar runs", deleted, corev1.PodStatus{InitContainerStatuses: running, ContainerStatuses: stopped}, true},
		{"it is deleted and has stopped", deleted, corev1.PodStatus{InitContainerStatuses: stopped, ContainerStatuses: stopped}, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", DeletionTimestamp: test.deleted}, Status: test.status}
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		if got := refersTo(pod, claim); got != test.want {
			t.Errorf("%s: uses the claim: %t, want %t", test.name, got, test.want)
		}
	}
}

func TestClaimsAreSyncedOnceAndWithoutTheCondition(t *testing.T) {
	without := &corev1.PersistentVolumeClaim{}
	with := without.DeepCopy()
	setUnused(with, true, time.Unix(1e9, 0))
	if !unsaid.Create(event.CreateEvent{Object: with}) {
		t.Error("a claim whose pod may have ended while no controller ran is not synced at the start")
	}
	for _, tc := range []struct {
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{{with, false}, {without, true}} {
		if got := unsaid.Update(event.UpdateEvent{ObjectOld: with, ObjectNew: tc.claim}); got != tc.want {
			t.Errorf("conditions %v: synced %t", tc.claim.Status.Conditions, got)
		}
	}
}
