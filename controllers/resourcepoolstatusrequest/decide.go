package resourcepoolstatusrequest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// answered and pending are how long requests with and without a status exist, as in
	// kube-controller-manager.
	answered = time.Hour
	pending  = 24 * time.Hour

	// patience is how long a request waits, from its creation on, for the slices of pools that
	// their driver is publishing, and retryPeriod the time between two attempts.
	patience    = 10 * time.Second
	retryPeriod = time.Second

	// maxError and maxMessage are the lengths, in bytes, of a pool's validationError, and of the
	// message of a failure, for which the API allows 32 KiB.
	maxError   = 256
	maxMessage = 1024
)

// expiry returns when a request is to be deleted.
func expiry(request *resourcev1alpha3.ResourcePoolStatusRequest) time.Time {
	if request.Status == nil {
		return request.CreationTimestamp.Add(pending)
	}
	for _, c := range request.Status.Conditions {
		if c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionComplete || c.Type == resourcev1alpha3.ResourcePoolStatusRequestConditionFailed {
			return c.LastTransitionTime.Add(answered)
		}
	}
	return request.CreationTimestamp.Add(answered)
}

// answerTo returns the status that answers a request. It is not complete while the answer has a
// pool of which not all slices are there.
func answerTo(request *resourcev1alpha3.ResourcePoolStatusRequest, published []*resourcev1.ResourceSlice, claims []*resourcev1.ResourceClaim, now time.Time) (answer *resourcev1alpha3.ResourcePoolStatusRequestStatus, complete bool) {
	found := poolsOf(request.Spec, published)
	for _, claim := range claims {
		count(claim, request.Spec.Driver, found)
	}
	names := slices.Sorted(maps.Keys(found))
	shown := names[:min(len(names), int(ptr.Deref(request.Spec.Limit, resourcev1alpha3.ResourcePoolStatusRequestLimitDefault)))]
	answer = &resourcev1alpha3.ResourcePoolStatusRequestStatus{PoolCount: ptr.To(int32(len(names)))}
	complete = true
	invalid := 0
	for _, name := range shown {
		p := found[name]
		status := p.status(request.Spec.DefaultPartitionTypeAttribute)
		complete = complete && p.complete()
		if status.ValidationError != nil {
			invalid++
		}
		answer.Pools = append(answer.Pools, status)
	}
	message := fmt.Sprintf("Calculated status for %d pools", len(shown))
	if invalid > 0 {
		message += fmt.Sprintf(" (%d incomplete)", invalid)
	}
	answer.Conditions = []metav1.Condition{{
		Type: resourcev1alpha3.ResourcePoolStatusRequestConditionComplete, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now), Reason: "CalculationComplete", Message: message,
	}}
	return answer, complete
}

// failure returns the status of a request whose answer the API server refuses, for example
// because a pool has the generation 0.
func failure(refusal error, now time.Time) *resourcev1alpha3.ResourcePoolStatusRequestStatus {
	return &resourcev1alpha3.ResourcePoolStatusRequestStatus{
		PoolCount: ptr.To[int32](0),
		Conditions: []metav1.Condition{{
			Type: resourcev1alpha3.ResourcePoolStatusRequestConditionFailed, Status: metav1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now), Reason: "CalculationFailed",
			Message: *cut("The API server refuses the state of the pools: "+refusal.Error(), maxMessage),
		}},
	}
}

// cut returns the beginning of a text with at most so many bytes.
func cut(text string, most int) *string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return &text
}

// poolsOf returns those pools that a request is for, by their names.
func poolsOf(spec resourcev1alpha3.ResourcePoolStatusRequestSpec, published []*resourcev1.ResourceSlice) map[string]*pool {
	pools := map[string]*pool{}
	for _, slice := range slices.SortedFunc(slices.Values(published), func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) }) {
		name := slice.Spec.Pool.Name
		if slice.Spec.Driver != spec.Driver || spec.PoolName != nil && name != *spec.PoolName {
			continue
		}
		switch p := pools[name]; {
		case p == nil || slice.Spec.Pool.Generation > p.generation():
			pools[name] = newPool(slice)
		case slice.Spec.Pool.Generation == p.generation():
			p.add(slice)
		}
	}
	return pools
}

// count counts what a claim has of the devices in a driver's pools. Administrative access does
// not take a device from others.
func count(claim *resourcev1.ResourceClaim, driver string, pools map[string]*pool) {
	if claim.Status.Allocation == nil {
		return
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		p := pools[result.Pool]
		if result.Driver != driver || p == nil || ptr.Deref(result.AdminAccess, false) {
			continue
		}
		p.allocate(result)
	}
}
