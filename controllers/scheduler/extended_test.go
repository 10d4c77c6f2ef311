package scheduler

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/scheduler/decision"
)

// newOffering returns a cluster with a node that has one device, and no class that offers it.
func newOffering(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t)
	profile := decision.DefaultProfile("default-scheduler")
	profile.ExtendedResources = true
	c.core.snapshot.SetProfiles(profile)
	c.node("n", nil)
	c.core.snapshot.SetResourceSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "n", ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "gpu-0"}},
	}})
	return c
}

func deviceClass(name, offers string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: &offers}}
}

func gpu(p *corev1.Pod) {
	p.Spec.Containers[0].Name = "c"
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
}

func TestAClassThatOffersAResourceRetriesThePodsThatRequestIt(t *testing.T) {
	c := newOffering(t)
	c.pod("a", gpu)
	c.pod("b", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("9")
	})
	c.expect("a: Insufficient example.com/gpu", "b: Insufficient cpu")
	c.now = c.now.Add(time.Minute)
	other := deviceClass("gpu", "example.com/other")
	c.core.deviceClassChanged(nil, other)
	c.expect()
	class := deviceClass("gpu", "example.com/gpu")
	c.core.deviceClassChanged(other, class)
	c.expect("a -> n")
	c.core.failed(c.steps["a"])
	c.core.deviceClassChanged(class, nil)
	c.now = c.now.Add(time.Minute)
	c.expect("b: Insufficient cpu", "a: Insufficient example.com/gpu")
}

func TestAFailedPodUsesTheClaimOfItsExtendedResourcesAgain(t *testing.T) {
	c := newOffering(t)
	c.core.deviceClassChanged(nil, deviceClass("gpu", "example.com/gpu"))
	c.pod("a", gpu)
	c.expect("a -> n")
	s := c.steps["a"]
	if len(s.devices) != 1 || s.devices[0].Create == nil || s.extended == nil || s.extended.ResourceClaimName != s.devices[0].Claim {
		t.Fatalf("devices %+v, status %+v", s.devices, s.extended)
	}
	made := s.devices[0].Create.DeepCopy()
	made.UID, made.ResourceVersion = "made", "1"
	c.core.resourceClaimChanged(nil, made)
	made = c.written("a", made)
	c.pod("b", gpu)
	c.expect("b: cannot allocate all claims")

	c.core.failed(s) // the binding
	c.now = c.now.Add(time.Second)
	c.expect("a -> n")
	if again := c.steps["a"]; len(again.devices) != 0 || again.extended == nil || again.extended.ResourceClaimName != made.Name {
		t.Errorf("devices %+v, status %+v", again.devices, again.extended)
	}

	// On a node that is full, the claim is given back to the others.
	c.core.failed(c.steps["a"])
	c.node("n", func(n *corev1.Node) { n.Spec.Unschedulable = true })
	c.now = c.now.Add(time.Minute)
	c.expect("a: were unschedulable")
	if got := c.steps["a"].release; got != made.Name {
		t.Errorf("releases %q, want %q", got, made.Name)
	}
	c.core.resourceClaimChanged(made, nil)
	c.node("n", func(n *corev1.Node) { n.Spec.Unschedulable = false })
	c.now = c.now.Add(time.Minute)
	c.expect("b -> n", "a: cannot allocate all claims")
}

func TestDevicesThatAreBeingWrittenAreNotFreeWhenTheirPodIsDeleted(t *testing.T) {
	c := newOffering(t)
	c.core.deviceClassChanged(nil, deviceClass("gpu", "example.com/gpu"))
	c.pod("a", gpu)
	c.expect("a -> n")
	s := c.steps["a"]
	c.core.writes(s)
	c.pod("b", gpu)
	c.expect("b: cannot allocate all claims")
	c.now = c.now.Add(time.Minute)
	c.removePod("a")
	c.core.deviceClassChanged(nil, deviceClass("other", "example.com/other"))
	c.expect("b: cannot allocate all claims")
	c.now = c.now.Add(time.Minute)
	c.core.wrote(s) // it has failed
	c.core.failed(s)
	c.expect("b -> n")
}

func TestTheClaimOfExtendedResourcesIsCreatedOnceAndNamedInThePod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "w"}}
	claim := func(name, class string) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: name, Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: pod.UID, Controller: new(true)}},
			},
			Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}}},
		}
	}
	foreign := claim("foreign", "gpu")
	foreign.OwnerReferences[0].UID = "other"
	c := fake.NewClientBuilder().WithStatusSubresource(&resourcev1.ResourceClaim{}, &corev1.Pod{}).WithObjects(pod, foreign, claim("stale", "fpga")).Build()
	b := &binder{client: c, plain: c, live: c}
	bind := func(name, device string) error {
		allocation := &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Device: device}}}}
		decisions := []decision.DeviceDecision{{Claim: name, Allocation: allocation, Create: claim(name, "gpu")}}
		return b.bindDevices(t.Context(), pod, decisions, func(*resourcev1.ResourceClaim) {})
	}
	for range 2 { // the response to the first may have been lost
		if err := bind("made", "gpu-0"); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"foreign": "not that of the pod's extended resources", "stale": "made for another node", "made": "its allocation has changed",
	} {
		if err := bind(name, "gpu-1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	made := &resourcev1.ResourceClaim{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "made"}, made); err != nil {
		t.Fatal(err)
	}
	if len(made.Status.ReservedFor) != 1 || made.Status.Allocation.Devices.Results[0].Device != "gpu-0" || len(made.Finalizers) != 1 {
		t.Errorf("got %+v", made)
	}

	status := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: "r"}}}
	named := func() *corev1.PodExtendedResourceClaimStatus {
		t.Helper()
		now := &corev1.Pod{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(pod), now); err != nil {
			t.Fatal(err)
		}
		return now.Status.ExtendedResourceClaimStatus
	}
	if err := b.nameExtendedClaim(t.Context(), pod, &decision.ExtendedStatus{PodExtendedResourceClaimStatus: status}); err != nil || named() == nil || named().ResourceClaimName != "made" {
		t.Errorf("got %+v, %v", named(), err)
	}
	if err := b.nameExtendedClaim(t.Context(), pod, nil); err != nil || named() == nil {
		t.Errorf("got %+v, %v", named(), err)
	}
	if err := b.nameExtendedClaim(t.Context(), pod, &decision.ExtendedStatus{}); err != nil || named() != nil {
		t.Errorf("got %+v, %v", named(), err)
	}

	changed := b.release(t.Context(), pod, []decision.Release{{Claim: made, Whole: true}})
	if len(changed) != 1 || changed[0].DeletionTimestamp == nil {
		t.Errorf("changed %+v, want the deleted claim", changed)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(made), made); !apierrors.IsNotFound(err) {
		t.Errorf("the claim of a pod that fits no node still exists: %v", err)
	}
}
