package namespace

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/controllers/discovery"
)

var (
	now     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pods    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	jobs    = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	metrics = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
)

func TestConditionsTellWhatRemains(t *testing.T) {
	left := remains{
		undiscovered: failures{metrics: {Err: errors.New("no endpoints")}},
		failed:       []error{errors.New("jobs.batch: refused"), errors.New("deployments.apps: refused")},
	}
	left.add(pods, object("a"))
	left.add(pods, object("b", "example.com/one"))
	left.add(jobs, object("c", "example.com/two", "example.com/one"))
	want := map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionDiscoveryFailure: "True DiscoveryFailed Discovery failed for some groups, 1 failing: metrics.k8s.io/v1beta1: no endpoints",
		corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions All legacy kube types successfully parsed",
		corev1.NamespaceDeletionContentFailure:   "True ContentDeletionFailed Failed to delete all resource types, 2 remaining: deployments.apps: refused, jobs.batch: refused",
		corev1.NamespaceContentRemaining:         "True SomeResourcesRemain Some resources are remaining: jobs.batch has 1 resource instances, pods. has 2 resource instances",
		corev1.NamespaceFinalizersRemaining:      "True SomeFinalizersRemain Some content in the namespace has finalizers remaining: example.com/one in 2 resource instances, example.com/two in 1 resource instances",
	}
	if diff := cmp.Diff(want, told(left.conditions())); diff != "" {
		t.Error(diff)
	}
}

func TestConditionsOfAnEmptyNamespaceTellOfNoProblem(t *testing.T) {
	want := map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionDiscoveryFailure: "False ResourcesDiscovered All resources successfully discovered",
		corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions All legacy kube types successfully parsed",
		corev1.NamespaceDeletionContentFailure:   "False ContentDeleted All content successfully deleted, may be waiting on finalization",
		corev1.NamespaceContentRemaining:         "False ContentRemoved All content successfully removed",
		corev1.NamespaceFinalizersRemaining:      "False ContentHasNoFinalizers All content-preserving finalizers finished",
	}
	if diff := cmp.Diff(want, told((remains{}).conditions())); diff != "" {
		t.Error(diff)
	}
}

func TestAnythingThatRemainsKeepsTheNamespace(t *testing.T) {
	counted := remains{}
	counted.add(pods, object("a"))
	for name, left := range map[string]remains{
		"an object":             counted,
		"an error":              {failed: []error{errors.New("refused")}},
		"an undiscovered group": {undiscovered: failures{metrics: {}}},
	} {
		if left.nothing() {
			t.Errorf("%s: nothing is left", name)
		}
	}
	if !(remains{}).nothing() {
		t.Error("something is left of nothing")
	}
}

func TestPause(t *testing.T) {
	for _, tc := range []struct {
		name   string
		took   time.Duration // from the deletion until now
		goneIn time.Duration // until the last pod's grace ends
		want   time.Duration
	}{
		{name: "is short at first", want: shortPause},
		{name: "grows with the time that the deletion takes", took: 10 * time.Second, want: 2 * time.Second},
		{name: "does not grow for ever", took: time.Hour, want: longPause},
		{name: "ends soon after the pods' grace", took: time.Hour, goneIn: 3 * time.Second, want: 3*time.Second + shortPause},
		{name: "is no longer for a long grace", took: 10 * time.Second, goneIn: time.Hour, want: 2 * time.Second},
		{name: "does not count a grace that is over", took: 10 * time.Second, goneIn: -time.Minute, want: 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left := remains{goneBy: now.Add(tc.goneIn)}
			if got := left.pause(now.Add(-tc.took), now); got != tc.want {
				t.Errorf("pause = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTheGraceOfThePodsIsThatOfTheLast(t *testing.T) {
	var left remains
	for _, seconds := range []int{5, 30, 10} {
		pod := object("a")
		pod.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(seconds) * time.Second)}
		left.add(pods, pod)
	}
	held := object("held", "example.com/hold")
	held.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Hour)}
	left.add(pods, held)
	if want := now.Add(30 * time.Second); !left.goneBy.Equal(want) {
		t.Errorf("gone by %s, want %s: an object with finalizers goes when they do", left.goneBy, want)
	}
}

func TestSetConditions(t *testing.T) {
	problem := corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Reason: "SomeResourcesRemain", Message: "2"}
	var status corev1.NamespaceStatus
	if !setConditions(&status, []corev1.NamespaceCondition{problem}, now) {
		t.Error("a new condition is no change")
	}
	if setConditions(&status, []corev1.NamespaceCondition{problem}, now.Add(time.Second)) {
		t.Error("the same condition is a change")
	}
	problem.Message = "1"
	if !setConditions(&status, []corev1.NamespaceCondition{problem}, now.Add(2*time.Second)) {
		t.Error("another message is no change")
	}
	if got := status.Conditions[0].LastTransitionTime.Time; !got.Equal(now) {
		t.Errorf("another message is a transition, at %s", got)
	}
	problem.Status = corev1.ConditionFalse
	setConditions(&status, []corev1.NamespaceCondition{problem}, now.Add(3*time.Second))
	if got := status.Conditions[0].LastTransitionTime.Time; !got.Equal(now.Add(3 * time.Second)) {
		t.Errorf("another status is a transition at %s", got)
	}
	if len(status.Conditions) != 1 {
		t.Errorf("%d conditions", len(status.Conditions))
	}
}

func TestOnlyAGroupThatMayHoldObjectsBlocks(t *testing.T) {
	resource := func(namespaced bool, verbs ...string) discovery.Resource {
		return discovery.Resource{GroupVersionResource: metrics.WithResource("things"), Namespaced: namespaced, Verbs: verbs}
	}
	for _, tc := range []struct {
		name    string
		failure discovery.Failure
		blocks  bool
	}{
		{name: "a group that was never discovered", blocks: true},
		{name: "a group that had objects in namespaces", failure: discovery.Failure{Known: true, Last: []discovery.Resource{resource(true, "list", "delete")}}, blocks: true},
		{name: "a group of the cluster's own objects", failure: discovery.Failure{Known: true, Last: []discovery.Resource{resource(false, "list", "delete")}}},
		{name: "a group whose objects cannot be deleted", failure: discovery.Failure{Known: true, Last: []discovery.Resource{resource(true, "get", "list")}}},
		{name: "a group without resources", failure: discovery.Failure{Known: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, got := mayHoldObjects(failures{metrics: tc.failure})[metrics]; got != tc.blocks {
				t.Errorf("blocks = %v, want %v", got, tc.blocks)
			}
		})
	}
}

func object(name string, finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Finalizers: finalizers}}
}

func told(conditions []corev1.NamespaceCondition) map[corev1.NamespaceConditionType]string {
	all := map[corev1.NamespaceConditionType]string{}
	for _, c := range conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	return all
}
