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

func TestConditionsReportRemainingContent(t *testing.T) {
	left := remaining{
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
	if diff := cmp.Diff(want, formatted(left.conditions())); diff != "" {
		t.Error(diff)
	}
}

func TestConditionsOfAnEmptyNamespaceAreFalse(t *testing.T) {
	want := map[corev1.NamespaceConditionType]string{
		corev1.NamespaceDeletionDiscoveryFailure: "False ResourcesDiscovered All resources successfully discovered",
		corev1.NamespaceDeletionGVParsingFailure: "False ParsedGroupVersions All legacy kube types successfully parsed",
		corev1.NamespaceDeletionContentFailure:   "False ContentDeleted All content successfully deleted, may be waiting on finalization",
		corev1.NamespaceContentRemaining:         "False ContentRemoved All content successfully removed",
		corev1.NamespaceFinalizersRemaining:      "False ContentHasNoFinalizers All content-preserving finalizers finished",
	}
	if diff := cmp.Diff(want, formatted((remaining{}).conditions())); diff != "" {
		t.Error(diff)
	}
}

func TestRemainingContentPreventsFinalization(t *testing.T) {
	counted := remaining{}
	counted.add(pods, object("a"))
	for name, left := range map[string]remaining{
		"an object":             counted,
		"an error":              {failed: []error{errors.New("refused")}},
		"an undiscovered group": {undiscovered: failures{metrics: {}}},
	} {
		if left.none() {
			t.Errorf("%s does not count as remaining content", name)
		}
	}
	if !(remaining{}).none() {
		t.Error("an empty namespace has remaining content")
	}
}

func TestRequeueAfter(t *testing.T) {
	for _, tc := range []struct {
		name   string
		took   time.Duration // from the deletion until now
		goneIn time.Duration // until the last pod's grace ends
		want   time.Duration
	}{
		{name: "is short at first", want: minRequeue},
		{name: "grows with the time that the deletion takes", took: 10 * time.Second, want: 2 * time.Second},
		{name: "is bounded", took: time.Hour, want: maxRequeue},
		{name: "ends soon after the grace period of the pods", took: time.Hour, goneIn: 3 * time.Second, want: 3*time.Second + minRequeue},
		{name: "is not longer for a long grace period", took: 10 * time.Second, goneIn: time.Hour, want: 2 * time.Second},
		{name: "ignores a grace period that is over", took: 10 * time.Second, goneIn: -time.Minute, want: 2 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left := remaining{goneBy: now.Add(tc.goneIn)}
			if got := left.requeueAfter(now.Add(-tc.took), now); got != tc.want {
				t.Errorf("requeueAfter = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGraceEndsWithThatOfTheLastPod(t *testing.T) {
	var left remaining
	for _, seconds := range []int{5, 30, 10} {
		pod := object("a")
		pod.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(seconds) * time.Second)}
		left.add(pods, pod)
	}
	held := object("held", "example.com/hold")
	held.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Hour)}
	left.add(pods, held)
	if want := now.Add(30 * time.Second); !left.goneBy.Equal(want) {
		t.Errorf("goneBy = %s, want %s: the grace period of an object with finalizers does not count", left.goneBy, want)
	}
}

func TestSetConditions(t *testing.T) {
	problem := corev1.NamespaceCondition{Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionTrue, Reason: "SomeResourcesRemain", Message: "2"}
	var status corev1.NamespaceStatus
	if !setConditions(&status, []corev1.NamespaceCondition{problem}, now) {
		t.Error("adding a condition is not reported as a change")
	}
	if setConditions(&status, []corev1.NamespaceCondition{problem}, now.Add(time.Second)) {
		t.Error("an equal condition is reported as a change")
	}
	problem.Message = "1"
	if !setConditions(&status, []corev1.NamespaceCondition{problem}, now.Add(2*time.Second)) {
		t.Error("another message is not reported as a change")
	}
	if got := status.Conditions[0].LastTransitionTime.Time; !got.Equal(now) {
		t.Errorf("another message sets lastTransitionTime to %s", got)
	}
	problem.Status = corev1.ConditionFalse
	setConditions(&status, []corev1.NamespaceCondition{problem}, now.Add(3*time.Second))
	if got := status.Conditions[0].LastTransitionTime.Time; !got.Equal(now.Add(3 * time.Second)) {
		t.Errorf("another status sets lastTransitionTime to %s", got)
	}
	if len(status.Conditions) != 1 {
		t.Errorf("%d conditions", len(status.Conditions))
	}
}

func TestFailedDiscoveryBlocksIfTheGroupMayHaveNamespacedObjects(t *testing.T) {
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
		{name: "a group of cluster-scoped objects", failure: discovery.Failure{Known: true, Last: []discovery.Resource{resource(false, "list", "delete")}}},
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

func TestPodsAreDeletedBeforeOtherResources(t *testing.T) {
	resource := func(gvr schema.GroupVersionResource, verbs ...string) discovery.Resource {
		return discovery.Resource{GroupVersionResource: gvr, Namespaced: true, Verbs: verbs}
	}
	otherPods := metrics.WithResource("pods")
	found := []discovery.Resource{resource(jobs, single...), resource(otherPods, single...), resource(configMaps, read...), resource(pods, single...)}
	var got [][]schema.GroupVersionResource
	for _, phase := range deletionPhases(found, "") {
		var names []schema.GroupVersionResource
		for _, r := range phase {
			names = append(names, r.GroupVersionResource)
		}
		got = append(got, names)
	}
	if diff := cmp.Diff([][]schema.GroupVersionResource{{pods}, {jobs, otherPods}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecide(t *testing.T) {
	left := remaining{failed: []error{errors.New("refused")}}
	for _, tc := range []struct {
		name  string
		left  remaining
		began time.Duration // after the deletion
		took  time.Duration // of the attempt
		want  decision
	}{
		{name: "an empty namespace is finalized after the grace period", began: 5 * time.Second, want: decision{finalize: true}},
		{name: "an attempt that began within the grace period is repeated at its end", began: time.Second, took: time.Second, want: decision{requeueAfter: 3 * time.Second}},
		{name: "and at once if the grace period has ended", began: time.Second, took: time.Minute, want: decision{requeueAfter: time.Millisecond}},
		{name: "remaining content is reported and deleted again", left: left, began: 9 * time.Second, took: time.Second, want: decision{report: true, requeueAfter: 2 * time.Second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := now.Add(tc.began)
			if got := decide(now, now, tc.left, began, began.Add(tc.took), 5*time.Second); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func object(name string, finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Finalizers: finalizers}}
}

func formatted(conditions []corev1.NamespaceCondition) map[corev1.NamespaceConditionType]string {
	all := map[corev1.NamespaceConditionType]string{}
	for _, c := range conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message
	}
	return all
}
