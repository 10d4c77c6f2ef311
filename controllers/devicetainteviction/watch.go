package devicetainteviction

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/eviction"
	"svc.dev/svc/controllers/versions"
)

// watches enqueue the pods that an event may evict.
type watches struct {
	reader
	evictor *eviction.Evictor
}

type queue = controller.Queue[reconcile.Request]

// changes watches a kind: before is nil for a new object, and after for a deleted one.
func changes[P client.Object](object client.Object, changed func(ctx context.Context, before, after P, q queue)) controller.Watch[reconcile.Request] {
	var none P
	return controller.Watch[reconcile.Request]{Object: object, Handler: handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { changed(ctx, none, e.Object.(P), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			changed(ctx, e.ObjectOld.(P), e.ObjectNew.(P), q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { changed(ctx, e.Object.(P), none, q) },
	}}
}

// pods enqueues pods that get claims or a node, and those that are gone before their
// eviction.
func (w watches) pods() controller.Watch[reconcile.Request] {
	return changes(&corev1.Pod{}, func(_ context.Context, before, after *corev1.Pod, q queue) {
		pod := after
		if pod == nil {
			pod = before
		}
		request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pod)}
		switch {
		case after == nil || after.DeletionTimestamp != nil:
			if w.evictor.IsScheduled(request.NamespacedName) {
				q.Add(request)
			}
		case len(after.Spec.ResourceClaims) == 0 && after.Status.ExtendedResourceClaimStatus == nil:
		case before == nil || before.UID != after.UID || before.Spec.NodeName != after.Spec.NodeName ||
			!resourceclaim.PodStatusEqual(before.Status.ResourceClaimStatuses, after.Status.ResourceClaimStatuses) ||
			!resourceclaim.PodExtendedStatusEqual(before.Status.ExtendedResourceClaimStatus, after.Status.ExtendedResourceClaimStatus):
			q.Add(request)
		}
	})
}

// claims enqueues the consumers of claims whose allocation or consumers change.
func (w watches) claims() controller.Watch[reconcile.Request] {
	return changes(&resourcev1.ResourceClaim{}, func(_ context.Context, before, after *resourcev1.ResourceClaim, q queue) {
		if before != nil && after != nil && before.UID == after.UID && slices.Equal(before.Status.ReservedFor, after.Status.ReservedFor) &&
			equality.Semantic.DeepEqual(before.Status.Allocation, after.Status.Allocation) {
			return
		}
		enqueue(q, before, after)
	})
}

// slices enqueues the users of a pool whose NoExecute taints may change.
func (w watches) slices() controller.Watch[reconcile.Request] {
	return changes(&resourcev1.ResourceSlice{}, func(ctx context.Context, before, after *resourcev1.ResourceSlice, q queue) {
		if before != nil && after != nil && poolOf(before) == poolOf(after) && before.Spec.Pool.Generation == after.Spec.Pool.Generation &&
			equality.Semantic.DeepEqual(noExecute(before), noExecute(after)) {
			return
		}
		for _, slice := range []*resourcev1.ResourceSlice{before, after} {
			if slice != nil {
				w.enqueueClaims(ctx, q, func(*resourcev1.ResourceClaim) bool { return true }, client.MatchingFields{claimsByPool().Name: poolOf(slice).key()})
			}
		}
	})
}

// rules enqueues the users of the devices that a rule selects, or did before.
func (w watches) rules(version versions.Version[resourcev1.DeviceTaintRule]) controller.Watch[reconcile.Request] {
	return changes(version.Object, func(ctx context.Context, before, after client.Object, q queue) {
		var rules []*resourcev1.DeviceTaintRule
		for _, obj := range []client.Object{before, after} {
			if obj != nil {
				rules = append(rules, version.As(obj))
			}
		}
		if len(rules) == 2 && rules[0].UID == rules[1].UID && equality.Semantic.DeepEqual(rules[0].Spec, rules[1].Spec) {
			return
		}
		w.enqueueClaims(ctx, q, func(c *resourcev1.ResourceClaim) bool {
			return slices.ContainsFunc(rules, func(r *resourcev1.DeviceTaintRule) bool { return len(selectedOf(r, c)) > 0 })
		})
	})
}

// enqueueClaims enqueues the consumers of the listed claims that match.
func (w watches) enqueueClaims(ctx context.Context, q queue, match func(*resourcev1.ResourceClaim) bool, options ...client.ListOption) {
	claims, err := w.listClaims(ctx, options...)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list resource claims of tainted devices")
		return
	}
	for _, claim := range claims {
		if match(claim) {
			enqueue(q, claim)
		}
	}
}

// enqueue enqueues the consumers of claims, of which some may be nil.
func enqueue(q queue, claims ...*resourcev1.ResourceClaim) {
	claims = slices.DeleteFunc(claims, func(c *resourcev1.ResourceClaim) bool { return c == nil })
	for _, key := range consumers(claims...) {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}
