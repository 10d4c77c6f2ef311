package daemonset

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"svc.dev/svc/controllers/daemonset/decide"
)

// The bounds of the delay before a failed pod is deleted, so that a pod that always fails
// is not created in a loop. They are those of kube-controller-manager.
const (
	minFailureDelay = time.Second
	maxFailureDelay = 15 * time.Minute
)

// backoff delays the deletion of failed pods, by set and node. A changed set begins
// again. It is safe for concurrent use.
type backoff struct {
	failures *flowcontrol.Backoff
}

func newBackoff(c clock.Clock) *backoff {
	b := flowcontrol.NewBackOff(minFailureDelay, maxFailureDelay)
	b.Clock = c
	return &backoff{b}
}

// due returns the failed pods that may be deleted now, and the time until the next one
// may be: 0 if there is none.
func (b *backoff) due(ds *appsv1.DaemonSet, failed []*corev1.Pod) (now []*corev1.Pod, next time.Duration) {
	at := b.failures.Clock.Now()
	for _, pod := range failed {
		key := fmt.Sprintf("%s/%d/%s", ds.UID, ds.Generation, decide.NodeOf(pod))
		if b.failures.IsInBackOffSinceUpdate(key, at) {
			if delay := b.failures.Get(key); next == 0 || delay < next {
				next = delay
			}
			continue
		}
		b.failures.Next(key, at)
		now = append(now, pod)
	}
	b.failures.GC() // it forgets sets and nodes that have gone
	return now, next
}
