package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/apis/devices"
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
}

func TestAReleaseChangesNoMoreThanThePodGivesBack(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "w"}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	claim.Status.ReservedFor = []resourcev1.ResourceClaimConsumerReference{devices.Consumer(pod)}
	other := resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: "other", UID: "o"}
	for _, test := range []struct {
		rule                    string
		whole, changes, another bool // the claim changes after the decision: another pod reserves it
		allocated               bool
		reserved                int
	}{
		{rule: "a whole claim is deallocated", whole: true},
		{rule: "a whole claim that has changed stays", whole: true, changes: true, allocated: true, reserved: 1},
		{rule: "a whole claim that another pod has reserved stays", whole: true, another: true, allocated: true, reserved: 2},
		{rule: "only the reservation ends", allocated: true},
		{rule: "the reservation of another pod stays", another: true, allocated: true, reserved: 1},
	} {
		t.Run(test.rule, func(t *testing.T) {
			c := fake.NewClientBuilder().WithStatusSubresource(claim).WithObjects(claim.DeepCopy()).Build()
			decided := &resourcev1.ResourceClaim{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), decided); err != nil {
				t.Fatal(err)
			}
			now := decided.DeepCopy()
			if test.another {
				now.Status.ReservedFor = append(now.Status.ReservedFor, other)
			}
			if test.changes {
				now.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Device: "gpu-0"}}
			}
			if err := c.Status().Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			if !test.another && !test.changes {
				decided = now
			}
			changed := (&binder{client: c}).release(t.Context(), pod, []decision.Release{{Claim: decided, Whole: test.whole}})
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), now); err != nil {
				t.Fatal(err)
			}
			if (now.Status.Allocation != nil) != test.allocated || len(now.Status.ReservedFor) != test.reserved {
				t.Errorf("left is %+v", now.Status)
			}
			if kept := test.whole && test.allocated; kept != (len(changed) == 0) {
				t.Errorf("%d claims are reported as changed", len(changed))
			}
		})
	}
}
