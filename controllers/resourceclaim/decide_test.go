package resourceclaim

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/index"
)

func TestClaimIsReleasedDeallocatedAndUnprotected(t *testing.T) {
	consumers := func(names ...string) []resourcev1.ResourceClaimConsumerReference {
		var all []resourcev1.ResourceClaimConsumerReference
		for _, name := range names {
			all = append(all, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: name})
		}
		return all
	}
	for _, test := range []struct {
		name                           string
		allocated, protected, deleting bool
		reserved, remaining            []resourcev1.ResourceClaimConsumerReference
		release, deallocate, finalizer bool
	}{
		{name: "a claim that is in use stays", allocated: true, protected: true, reserved: consumers("a"), remaining: consumers("a")},
		{name: "one of two consumers ends", allocated: true, protected: true, reserved: consumers("a", "b"), remaining: consumers("b"), release: true},
		{name: "the last consumer ends", allocated: true, protected: true, reserved: consumers("a"), release: true, deallocate: true, finalizer: true},
		{name: "the last consumer ends, allocated by another controller", allocated: true, reserved: consumers("a"), release: true},
		{name: "allocated and not reserved", allocated: true, protected: true},
		{name: "deleted while in use", allocated: true, protected: true, deleting: true, reserved: consumers("a"), remaining: consumers("a")},
		{name: "deleted, allocated and not reserved", allocated: true, protected: true, deleting: true, deallocate: true, finalizer: true},
		{name: "deleted when the last consumer has ended", protected: true, deleting: true, finalizer: true},
		{name: "deleted, without the finalizer", deleting: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{ReservedFor: test.reserved}}
			if test.allocated {
				claim.Status.Allocation = &resourcev1.AllocationResult{}
			}
			if test.protected {
				claim.Finalizers = []string{resourcev1.Finalizer}
			}
			if test.deleting {
				claim.DeletionTimestamp = new(metav1.Now())
			}
			got := decide(claim, test.remaining)
			if got.release != test.release || got.deallocate != test.deallocate || got.removeFinalizer != test.finalizer || len(got.remaining) != len(test.remaining) && got.release {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestNameOfAMadeClaim(t *testing.T) {
	long := strings.Repeat("p", 60)
	for _, test := range []struct{ pod, claim, want string }{
		{"web", "gpu", "web-gpu-"},
		{long, strings.Repeat("c", 20), strings.Repeat("p", 41) + "-" + strings.Repeat("c", 13)},
	} {
		if got := generateName(test.pod, test.claim); got != test.want {
			t.Errorf("%s, %s: %q, want %q", test.pod, test.claim, got, test.want)
		}
	}
}

func TestMadeClaimHasWhatItsTemplateSays(t *testing.T) {
	template := &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}},
		Spec:       resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r"}}}},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}
	claim := fromTemplate(pod, "gpu", template)
	if claim.Namespace != "ns" || claim.Labels["l"] != "1" || claim.Annotations["a"] != "1" || claim.Annotations[resourcev1.PodResourceClaimAnnotation] != "gpu" || claim.Spec.Devices.Requests[0].Name != "r" {
		t.Errorf("%+v", claim)
	}
	if !metav1.IsControlledBy(claim, pod) || owner(claim).UID != "u" {
		t.Errorf("owners %+v", claim.OwnerReferences)
	}
	if len(template.Spec.Annotations) != 1 {
		t.Errorf("the template was changed: %v", template.Spec.Annotations)
	}
	if got := madeFor("gpu", []resourcev1.ResourceClaim{{}, *claim}); got == nil || got.Name != claim.Name {
		t.Errorf("the claim is not found again")
	}
}

func TestPodThatIsDone(t *testing.T) {
	for _, test := range []struct {
		name string
		pod  corev1.Pod
		want bool
	}{
		{"runs", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, false},
		{"has succeeded", corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, true},
		{"was deleted before it was bound", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}, true},
		{"ends on its node", corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}, Spec: corev1.PodSpec{NodeName: "n"}}, false},
	} {
		if got := isDone(&test.pod); got != test.want {
			t.Errorf("a pod that %s: %v", test.name, got)
		}
	}
}

func TestTheClaimsOfAnEndedPodAreThoseThatItNamesAndThoseThatItOwns(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("shared")}}
	pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "named"}
	owned := func(namespace, name string, by types.UID) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Pod", Name: "web", UID: by, Controller: new(true)},
		}}}
	}
	by := index.ByController(&resourcev1.ResourceClaim{})
	c := fake.NewClientBuilder().WithIndex(by.Object, by.Name, by.Values).
		WithObjects(owned("ns", "named", "u"), owned("ns", "not-named-yet", "u"), owned("ns", "other", "v"), owned("other", "theirs", "u")).Build()
	var got []string
	for _, r := range (watches{c}).claimsOfEndedPod(t.Context(), pod) {
		got = append(got, r.String())
	}
	slices.Sort(got)
	if want := []string{"ns/named", "ns/not-named-yet", "ns/shared"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
