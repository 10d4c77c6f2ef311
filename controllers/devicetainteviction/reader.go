package devicetainteviction

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"sigs.k8s.io/controller-runtime/pkg/client"

	devicesapi "svc.dev/svc/apis/devices"
	"svc.dev/svc/controllers/versions"
	"svc.dev/svc/internal/items"
)

// reader reads what decisions need. It returns the cache's own objects.
type reader struct {
	client client.Reader
	// rules is nil if the API server does not serve DeviceTaintRules.
	rules *versions.Client[resourcev1.DeviceTaintRule]
}

// claimsOf returns those claims of a pod that exist, by their names.
func (r reader) claimsOf(ctx context.Context, pod *corev1.Pod) (map[string]*resourcev1.ResourceClaim, error) {
	claims := map[string]*resourcev1.ResourceClaim{}
	for name := range resourceclaim.PodClaims(pod) {
		claim := &resourcev1.ResourceClaim{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: name}, claim, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			claims[name] = claim
		}
	}
	return claims, nil
}

// taintsOf returns the taints of the devices of claims.
func (r reader) taintsOf(ctx context.Context, claims map[string]*resourcev1.ResourceClaim) (taints, error) {
	pools := map[pool]bool{}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			pools[pool{allocated.Driver, allocated.Pool}] = true
		}
	}
	var all []*resourcev1.ResourceSlice
	for p := range pools {
		slices, err := r.listSlices(ctx, client.MatchingFields{slicesByPool().Name: p.key()})
		if err != nil {
			return taints{}, err
		}
		all = append(all, slices...)
	}
	rules, err := r.listRules(ctx)
	return newTaints(rules, all), err
}

func (r reader) listRules(ctx context.Context) ([]*resourcev1.DeviceTaintRule, error) {
	if r.rules == nil {
		return nil, nil
	}
	return r.rules.List(ctx)
}

func (r reader) listSlices(ctx context.Context, options ...client.ListOption) ([]*resourcev1.ResourceSlice, error) {
	var list resourcev1.ResourceSliceList
	if err := r.client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}

func (r reader) listClaims(ctx context.Context, options ...client.ListOption) ([]*resourcev1.ResourceClaim, error) {
	var list resourcev1.ResourceClaimList
	if err := r.client.List(ctx, &list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, err
	}
	return items.Pointers(list.Items), nil
}

// consumers returns the pods for which claims are reserved, by their UIDs.
func consumers(claims ...*resourcev1.ResourceClaim) map[types.UID]client.ObjectKey {
	pods := map[types.UID]client.ObjectKey{}
	for _, claim := range claims {
		for _, c := range claim.Status.ReservedFor {
			if devicesapi.IsPod(c) {
				pods[c.UID] = client.ObjectKey{Namespace: claim.Namespace, Name: c.Name}
			}
		}
	}
	return pods
}

// users returns the pods for which claims are reserved, with all their claims.
func (r reader) users(ctx context.Context, claims []*resourcev1.ResourceClaim) ([]user, error) {
	var users []user
	for uid, key := range consumers(claims...) {
		pod := &corev1.Pod{}
		err := r.client.Get(ctx, key, pod, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err != nil || pod.UID != uid {
			continue
		}
		its, err := r.claimsOf(ctx, pod)
		if err != nil {
			return nil, err
		}
		users = append(users, user{pod, its})
	}
	return users, nil
}
