package election

import (
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// mayTake reports whether holder may acquire a lease that this process has observed
// to be unchanged for this long. It ignores the times in the lease, because clocks
// may differ.
func mayTake(spec coordinationv1.LeaseSpec, holder string, unchanged time.Duration) bool {
	switch ptr.Deref(spec.HolderIdentity, "") {
	case "", holder:
		return true
	}
	return unchanged > time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 0))*time.Second
}

// held returns the lease after holder has acquired or renewed it.
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

// released returns the lease after its holder has released it: any process may
// acquire it.
func released(old coordinationv1.LeaseSpec, now time.Time) coordinationv1.LeaseSpec {
	spec := *old.DeepCopy()
	spec.HolderIdentity = ptr.To("")
	spec.LeaseDurationSeconds = ptr.To(int32(1))
	spec.RenewTime = &metav1.MicroTime{Time: now}
	return spec
}
