package pods

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPodHasWhatItsTemplateSays(t *testing.T) {
	owner := &metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "1"}
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ignored", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"note": "x"}, Finalizers: []string{"example.com/f"},
		},
		Spec: corev1.PodSpec{NodeName: "n"},
	}
	pod := FromTemplate(owner, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, template)
	got := fmt.Sprint(pod.Namespace, pod.Name, pod.GenerateName, pod.Labels, pod.Annotations, pod.Finalizers, pod.Spec.NodeName)
	if want := "a" + "web-map[app:web] map[note:x] [example.com/f]n"; strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got %s", got)
	}
	if ref := metav1.GetControllerOf(pod); ref == nil || ref.APIVersion != "apps/v1" || ref.Kind != "ReplicaSet" || ref.Name != "web" || ref.UID != "1" || !*ref.BlockOwnerDeletion {
		t.Errorf("the controller is %v", ref)
	}
	pod.Labels["app"] = "other"
	if template.Labels["app"] != "web" {
		t.Error("the pod shares its labels with the template")
	}
}

func TestBatchesGrowUntilOneFails(t *testing.T) {
	failing := errors.New("quota")
	for _, tt := range []struct {
		rule                string
		count, first, fails int
		called, succeeded   int
	}{
		{"nothing to do", 0, 1, -1, 0, 0},
		{"all succeed", 10, 1, -1, 10, 10},
		{"a first failure stops it at once", 10, 1, 0, 1, 0},
		{"the batch with the failure ends: 1, 2, 4", 10, 1, 4, 7, 6},
		{"the last batch is what is left", 5, 1, 4, 5, 4},
		{"all at once", 10, 10, 3, 10, 9},
	} {
		var mu sync.Mutex
		called := map[int]bool{}
		succeeded, err := InBatches(tt.count, tt.first, func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			called[i] = true
			if i == tt.fails {
				return failing
			}
			return nil
		})
		if len(called) != tt.called || succeeded != tt.succeeded || (err != nil) != (tt.fails >= 0) {
			t.Errorf("%s: %d calls, %d succeeded, %v", tt.rule, len(called), succeeded, err)
		}
	}
}

func TestAvailableAfterMinReadySeconds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ready := func(status corev1.ConditionStatus, ago time.Duration) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago))},
		}}}
	}
	unknown := ready(corev1.ConditionTrue, 0)
	unknown.Status.Conditions[0].LastTransitionTime = metav1.Time{}
	for _, tt := range []struct {
		rule       string
		pod        *corev1.Pod
		minSeconds int32
		available  bool
		in         time.Duration
	}{
		{"without a condition", &corev1.Pod{}, 0, false, 0},
		{"not ready", ready(corev1.ConditionFalse, time.Hour), 10, false, 0},
		{"ready is enough", ready(corev1.ConditionTrue, 0), 0, true, 0},
		{"ready is enough, whenever that was", unknown, 0, true, 0},
		{"ready, but since when", unknown, 10, false, 0},
		{"not long enough", ready(corev1.ConditionTrue, 4*time.Second), 10, false, 6 * time.Second},
		{"exactly long enough", ready(corev1.ConditionTrue, 10*time.Second), 10, true, 0},
		{"long ago", ready(corev1.ConditionTrue, time.Hour), 10, true, 0},
	} {
		if available, in := IsAvailable(tt.pod, tt.minSeconds, now); available != tt.available || in != tt.in {
			t.Errorf("%s: %v in %s", tt.rule, available, in)
		}
	}
}

func TestPhaseAndDeletionOfAPod(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		phase               corev1.PodPhase
		deleted             *metav1.Time
		active, terminating bool
	}{
		{corev1.PodPending, nil, true, false},
		{corev1.PodRunning, nil, true, false},
		{corev1.PodRunning, &now, false, true},
		{corev1.PodFailed, nil, false, false},
		{corev1.PodSucceeded, &now, false, false},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tt.deleted}, Status: corev1.PodStatus{Phase: tt.phase}}
		if IsActive(pod) != tt.active || IsTerminating(pod) != tt.terminating {
			t.Errorf("%s, deleted %v: active %v, terminating %v", tt.phase, tt.deleted, IsActive(pod), IsTerminating(pod))
		}
	}
}
