package decision

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	devicesapi "svc.dev/svc/apis/devices"
)

// DefaultDeviceBindTimeout is how long a pod waits for its devices to be ready, as with
// kube-scheduler.
const DefaultDeviceBindTimeout = 10 * time.Minute

// DefaultDeviceSearchTimeout is how long the search for devices of a node may take, as with
// kube-scheduler.
const DefaultDeviceSearchTimeout = 10 * time.Second

// DeviceWait is a resource claim whose devices are not ready: the pod is bound when their
// drivers have set all binding conditions of the devices (KEP-5007).
type DeviceWait struct {
	Claim string
	// Since is the time of the allocation; zero if the claim has none.
	Since time.Time
}

// await adds an allocated claim to those that the pod waits for, if its devices are not ready.
// A claim with a binding failure condition can be used on no node.
func (need *devicesRequest) await(claim *resourcev1.ResourceClaim) {
	wait := false
	for i := range claim.Status.Allocation.Devices.Results {
		result := &claim.Status.Allocation.Devices.Results[i]
		if len(result.BindingConditions) == 0 {
			continue
		}
		status := statusOf(claim, result)
		holds := func(condition string) bool { return meta.IsStatusConditionTrue(status.Conditions, condition) }
		if slices.ContainsFunc(result.BindingFailureConditions, holds) {
			// The first, so that this one is released.
			need.reach = slices.Insert(need.reach, 0, reachedClaim{claim: claim})
			return
		}
		wait = wait || slices.ContainsFunc(result.BindingConditions, func(c string) bool { return !holds(c) })
	}
	if !wait {
		return
	}
	since := ptr.Deref(claim.Status.Allocation.AllocationTimestamp, metav1.Time{}).Time
	if need.wait == nil || since.Before(need.wait.Since) {
		need.wait = &DeviceWait{claim.Name, since}
	}
}

// awaits returns the claim that a pod waits for if decisions are written; nil if it can be
// bound at once.
func (need *devicesRequest) awaits(decisions []DeviceDecision) *DeviceWait {
	switch {
	case need == nil:
		return nil
	case need.wait != nil:
		return need.wait
	}
	for _, d := range decisions {
		if d.Allocation != nil && slices.ContainsFunc(d.Allocation.Devices.Results, hasBindingConditions) {
			return &DeviceWait{Claim: d.Claim}
		}
	}
	return nil
}

func hasBindingConditions(r resourcev1.DeviceRequestAllocationResult) bool {
	return len(r.BindingConditions) > 0
}

// UsesResourceClaim reports whether a pod uses a resource claim: one that it names, or the one
// that was made for its extended resources.
func UsesResourceClaim(pod *corev1.Pod, claim *resourcev1.ResourceClaim) bool {
	if owner := devicesapi.ExtendedClaimOf(claim); owner != "" && owner == pod.UID {
		return true
	}
	for name := range resourceclaim.PodClaims(pod) {
		if name == claim.Name && pod.Namespace == claim.Namespace {
			return true
		}
	}
	return false
}

// statusOf returns what the driver of an allocated device has written about it.
func statusOf(claim *resourcev1.ResourceClaim, result *resourcev1.DeviceRequestAllocationResult) resourcev1.AllocatedDeviceStatus {
	for _, s := range claim.Status.Devices {
		if s.Driver == result.Driver && s.Pool == result.Pool && s.Device == result.Device && ptr.Deref(s.ShareID, "") == string(ptr.Deref(result.ShareID, "")) {
			return s
		}
	}
	return resourcev1.AllocatedDeviceStatus{}
}
