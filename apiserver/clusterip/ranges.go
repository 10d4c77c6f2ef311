package clusterip

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"

	"svc.dev/svc/apis/servicerange"
)

// pause is how often it is checked whether the informer has synced.
const pause = 10 * time.Millisecond

// Ranges follows the ServiceCIDR objects.
type Ranges struct {
	first  []netip.Prefix
	lister networkinglisters.ServiceCIDRLister
	state  atomic.Pointer[state]
}

// state is what is known after an event.
type state struct {
	objects []*networkingv1.ServiceCIDR
	ready   []netip.Prefix
}

// NewRanges returns the ranges of an informer's objects; first are those that are used
// before all others (flag --service-cluster-ip-range).
func NewRanges(first []netip.Prefix, informer networkinginformers.ServiceCIDRInformer) (*Ranges, error) {
	r := &Ranges{first: first, lister: informer.Lister()}
	r.state.Store(&state{})
	_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.update() },
		UpdateFunc: func(_, _ any) { r.update() },
		DeleteFunc: func(any) { r.update() },
	})
	return r, err
}

// update runs in one goroutine of the informer.
func (r *Ranges) update() {
	objects, _ := r.lister.List(labels.Everything()) // the lister of an informer has no errors
	r.state.Store(&state{objects, readyRanges(objects, r.first)})
}

// Ready returns the ranges from which addresses are allocated, in the order of their use.
// It has none until the informer has synced.
func (r *Ranges) Ready() []netip.Prefix { return r.state.Load().ready }

// Sees reports whether allocations follow an object in this version.
func (r *Ranges) Sees(object *networkingv1.ServiceCIDR) bool {
	return slices.ContainsFunc(r.state.Load().objects, func(seen *networkingv1.ServiceCIDR) bool {
		return seen.Name == object.Name && seen.ResourceVersion == object.ResourceVersion
	})
}

// Wait waits until there is a ServiceCIDR, whether it is ready or not.
func (r *Ranges) Wait(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, pause, true, func(context.Context) (bool, error) { return len(r.state.Load().objects) > 0, nil })
}

// Contain reports whether an address is in any range, also in one from which no addresses
// are allocated.
func (r *Ranges) Contain(address netip.Addr) bool {
	return slices.ContainsFunc(r.state.Load().objects, func(object *networkingv1.ServiceCIDR) bool { return servicerange.Has(object, address) })
}

// readyRanges returns the ranges of the objects that are ready and not being deleted: first
// those of first, then the others by the age of their objects.
func readyRanges(objects []*networkingv1.ServiceCIDR, first []netip.Prefix) []netip.Prefix {
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b *networkingv1.ServiceCIDR) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var ready []netip.Prefix
	for _, object := range sorted {
		if object.DeletionTimestamp != nil || !meta.IsStatusConditionTrue(object.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			continue
		}
		for _, cidr := range servicerange.Of(object) {
			if !slices.Contains(ready, cidr) {
				ready = append(ready, cidr)
			}
		}
	}
	slices.SortStableFunc(ready, func(a, b netip.Prefix) int { return cmp.Compare(position(first, a), position(first, b)) })
	return ready
}

// position returns the index of a range in first, or its length.
func position(first []netip.Prefix, cidr netip.Prefix) int {
	if i := slices.Index(first, cidr); i >= 0 {
		return i
	}
	return len(first)
}
