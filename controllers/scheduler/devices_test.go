package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/scheduler/decision"
)

func TestDevicesAreWrittenBeforeThePodIsBound(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "w"}}
	allocation := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Device: "gpu-0"}}}}
	claim := func(name string, allocated bool) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		if allocated {
			c.Status.Allocation = allocation
		}
		return c
	}
	c := fake.NewClientBuilder().WithStatusSubresource(&resourcev1.ResourceClaim{}).WithObjects(claim("free", false), claim("shared", true), claim("taken", true)).Build()
	b := &binder{client: c, plain: c, live: c}
	bind := func(decisions ...decision.DeviceDecision) (written []string, err error) {
		err = b.bindDevices(t.Context(), pod, decisions, func(claim *resourcev1.ResourceClaim) { written = append(written, claim.Name) })
		return written, err
	}
	get := func(name string) *resourcev1.ResourceClaim {
		t.Helper()
		found := &resourcev1.ResourceClaim{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	for range 2 { // the second finds all done
		if written, err := bind(decision.DeviceDecision{Claim: "free", Allocation: allocation}, decision.DeviceDecision{Claim: "shared"}); err != nil || len(written) != 2 {
			t.Fatalf("%v: %v", written, err)
		}
	}
	free, shared := get("free"), get("shared")
	if len(free.Status.ReservedFor) != 1 || free.Status.Allocation == nil || len(free.Finalizers) != 1 || len(shared.Status.ReservedFor) != 1 || len(shared.Finalizers) != 0 {
		t.Errorf("free %+v, shared %+v", free, shared)
	}
	if _, err := bind(decision.DeviceDecision{Claim: "taken", Allocation: allocation}); err == nil {
		t.Error("a claim that has been allocated meanwhile is allocated again")
	}
	if _, err := bind(decision.DeviceDecision{Claim: "gone", Allocation: allocation}); err == nil {
		t.Error("a deleted claim is allocated")
	}
	b.release(t.Context(), pod, "free")
	if free := get("free"); free.Status.Allocation != nil || len(free.Status.ReservedFor) != 0 {
		t.Errorf("it is still allocated: %+v", free.Status)
	}
	b.release(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", UID: "other"}}, "shared")
	if get("shared").Status.Allocation == nil {
		t.Error("a claim of another pod is deallocated")
	}
}
