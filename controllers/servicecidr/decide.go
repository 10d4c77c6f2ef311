package servicecidr

import (
	"net/netip"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"svc.dev/svc/apis/servicerange"
)

const (
	// finalizer protects ServiceCIDRs from deletion.
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// deletionGrace is how long after the request to delete a ServiceCIDR its finalizer stays,
	// until all API servers no longer allocate addresses from its ranges.
	deletionGrace = 10 * time.Second
)

// action is what to do about a ServiceCIDR.
type action struct {
	// finalize adds the finalizer, and release removes it.
	finalize, release bool
	// ready is its condition Ready, without a status if that stays.
	ready metav1.Condition
	// after is the time until the next decision; zero is for none.
	after time.Duration
}

// decide returns what to do about a ServiceCIDR, of all that there are, and IP addresses.
func decide(object *networkingv1.ServiceCIDR, all []networkingv1.ServiceCIDR, addresses []networkingv1.IPAddress, now time.Time) action {
	has := controllerutil.ContainsFinalizer(object, finalizer)
	if object.DeletionTimestamp == nil {
		return action{finalize: !has, ready: metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"}}
	}
	switch left := deletionGrace - now.Sub(object.DeletionTimestamp.Time); {
	case !covered(object, all) && needed(object, all, addresses):
		return action{ready: metav1.Condition{
			Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
		}}
	case left > 0:
		return action{after: left}
	default:
		return action{release: has}
	}
}

// others returns the ServiceCIDRs that stay when an object is deleted. Those that are being
// deleted, too, do not count: two could release each other.
func others(object *networkingv1.ServiceCIDR, all []networkingv1.ServiceCIDR) []networkingv1.ServiceCIDR {
	return slices.DeleteFunc(slices.Clone(all), func(other networkingv1.ServiceCIDR) bool {
		return other.Name == object.Name || other.DeletionTimestamp != nil
	})
}

// covered reports whether each range of an object is a part of a range of another one.
func covered(object *networkingv1.ServiceCIDR, all []networkingv1.ServiceCIDR) bool {
	rest := others(object, all)
	return !slices.ContainsFunc(servicerange.Of(object), func(cidr netip.Prefix) bool {
		return !slices.ContainsFunc(rest, func(other networkingv1.ServiceCIDR) bool {
			return slices.ContainsFunc(servicerange.Of(&other), func(larger netip.Prefix) bool {
				return larger.Overlaps(cidr) && larger.Bits() <= cidr.Bits()
			})
		})
	})
}

// needed reports whether an address of a service is in the ranges of an object, and in no
// other.
func needed(object *networkingv1.ServiceCIDR, all []networkingv1.ServiceCIDR, addresses []networkingv1.IPAddress) bool {
	rest := others(object, all)
	return slices.ContainsFunc(addresses, func(a networkingv1.IPAddress) bool {
		address, ok := ofService(&a)
		return ok && servicerange.Has(object, address) &&
			!slices.ContainsFunc(rest, func(other networkingv1.ServiceCIDR) bool { return servicerange.Has(&other, address) })
	})
}

// ofService returns the address of an object that the API server has written for a service.
func ofService(a *networkingv1.IPAddress) (netip.Addr, bool) {
	if a.Labels[networkingv1.LabelManagedBy] != servicerange.Manager {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(a.Name)
	return address, err == nil
}
