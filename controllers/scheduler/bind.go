package scheduler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// binder puts pods on nodes.
type binder struct {
	client client.Client
	live   client.Reader
}

// askAgain is the time between two tries to find out what has become of a pod,
// while the API server does not answer.
const askAgain = time.Second

// bind puts a pod on a node and tells whether it is there. If it is not, the
// error says why, unless the pod needs no node any more. An answer that does
// not come leaves open what the API server has done: then it is asked, until it
// answers or ctx is done.
func (b *binder) bind(ctx context.Context, pod *corev1.Pod, node string) (bool, error) {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	err := b.client.SubResource("binding").Create(ctx, pod, binding)
	if err == nil {
		return true, nil
	}
	now := &corev1.Pod{}
	if ask := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		err := b.live.Get(ctx, client.ObjectKeyFromObject(pod), now)
		if apierrors.IsNotFound(err) {
			now.UID = ""
			return true, nil
		}
		return err == nil, nil
	}); ask != nil {
		return false, nil // the scheduler stops
	}
	switch {
	case now.UID != pod.UID, now.DeletionTimestamp != nil:
		return false, nil
	case now.Spec.NodeName != "":
		return now.Spec.NodeName == node, nil
	}
	return false, err
}
