package statefulset

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/pods"
)

// The bounds of the delay before a pod that terminates again and again is deleted, to be
// created again: one that its node refuses terminates at once. The first deletion has no
// delay, as in kube-controller-manager, which has none at all.
const (
	minRecreateDelay = time.Second
	maxRecreateDelay = time.Minute
)

// backoff delays the deletion of terminated pods, by set and name. A changed set begins
// again, as does a pod that has not terminated for twice the longest delay. It is safe for
// concurrent use.
type backoff struct {
	failures *flowcontrol.Backoff
}

func newBackoff(c clock.Clock) *backoff {
	b := flowcontrol.NewBackOff(minRecreateDelay, maxRecreateDelay)
	b.Clock = c
	return &backoff{b}
}

func backoffKey(set *appsv1.StatefulSet, pod *corev1.Pod) string {
	return fmt.Sprintf("%s/%d/%s", set.UID, set.Generation, pod.Name)
}

// delays returns the time until each terminated pod may be deleted, but for those that may
// be now.
func (b *backoff) delays(set *appsv1.StatefulSet, all []*corev1.Pod) map[types.UID]time.Duration {
	var delays map[types.UID]time.Duration
	now := b.failures.Clock.Now()
	for _, pod := range all {
		key := backoffKey(set, pod)
		if !pods.IsTerminal(pod) || pod.DeletionTimestamp != nil || !b.failures.IsInBackOffSinceUpdate(key, now) {
			continue
		}
		if delays == nil {
			delays = map[types.UID]time.Duration{}
		}
		delays[pod.UID] = b.failures.Get(key)
	}
	b.failures.GC() // it forgets sets and pods that have gone
	return delays
}

// deleted records the deletion of a pod that had terminated.
func (b *backoff) deleted(set *appsv1.StatefulSet, pod *corev1.Pod) {
	if pods.IsTerminal(pod) {
		b.failures.Next(backoffKey(set, pod), b.failures.Clock.Now())
	}
}
