package resourcequota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	library "k8s.io/apiserver/pkg/quota/v1"
)

// status returns the status of a quota with the usage that was calculated. Other
// resources keep their present usage.
func status(q *corev1.ResourceQuota, used corev1.ResourceList) corev1.ResourceQuotaStatus {
	all := library.Add(q.Status.Used, nil)
	for name, amount := range used {
		all[name] = amount
	}
	return corev1.ResourceQuotaStatus{
		Hard: library.Add(q.Spec.Hard, nil),
		Used: library.Mask(all, library.ResourceNames(q.Spec.Hard)),
	}
}

// lowers reports whether after has less of a resource than before.
func lowers(before, after corev1.ResourceList) bool {
	for name, amount := range after {
		if known, ok := before[name]; ok && amount.Cmp(known) < 0 {
			return true
		}
	}
	return false
}

// schedule is the time after which a quota is requeued; 0 is never.
type schedule struct {
	after time.Duration
}

// in requeues the quota after d, unless it is requeued earlier.
func (s *schedule) in(d time.Duration) {
	if s.after == 0 || d < s.after {
		s.after = d
	}
}
