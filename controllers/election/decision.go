package election

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// mayTake tells whether holder may write its name into a lease that has not
// changed for unchanged, as this process has seen it. The times in the lease
// are not looked at: clocks may differ.
func mayTake(spec coordinationv1.LeaseSpec, holder string, unchanged time.Duration) bool {
	switch ptr.Deref(spec.HolderIdentity, "") {
	case "", holder:
		return true
	}
	return unchanged > time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0))*time.Second
}

// held is the lease once holder has taken it over from old, or has renewed it.
func held(old coordinationv1.LeaseSpec, holder string, duration time.Duration, now time.Time) coordinationv1.LeaseSpec {
	spec := *old.DeepCopy()
	if ptr.Deref(old.HolderIdentity, "") != holder {
		spec.HolderIdentity = &holder
		spec.AcquireTime = &metav1.MicroTime{Time: now}
		if old.HolderIdentity != nil {
			spec.LeaseTransitions = ptr.To(ptr.Deref(old.LeaseTransitions, 0) + 1)
		}
	}
	spec.LeaseDurationSeconds = ptr.To(int32(math.Ceil(duration.Seconds())))
	spec.RenewTime = &metav1.MicroTime{Time: now}
	return spec
}

// released is the lease once its holder has given it back: whoever looks next
// may take it.
func released(old coordinationv1.LeaseSpec, now time.Time) coordinationv1.LeaseSpec {
	spec := *old.DeepCopy()
	spec.HolderIdentity = ptr.To("")
	spec.LeaseDurationSeconds = ptr.To(int32(1))
	spec.RenewTime = &metav1.MicroTime{Time: now}
	return spec
}
