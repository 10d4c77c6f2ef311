package takeover

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// crowded is a node that has room for seats pods, one for each of the last rounds.
	crowded = "crowded"
	seats   = 3
)

// ranked is the pod of a round on the crowded node, and its priority class.
func ranked(round int) string { return fmt.Sprintf("ranked-%d", round) }

// crowd makes a node the crowded one.
func crowd(node *corev1.Node) {
	node.Spec.Taints = []corev1.Taint{{Key: crowded, Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Capacity[corev1.ResourceCPU] = resource.MustParse(fmt.Sprint(seats))
}

// changeRanks creates a pod that preempts the one that has the lowest priority. A scheduler
// that does not know the nomination of its predecessor preempts another one, too.
func (w *work) changeRanks(ctx context.Context) error {
	var create metav1.CreateOptions
	name := ranked(w.round)
	if _, err := w.client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: meta(name), Value: int32(w.round)}, create); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: meta(name), Spec: template("ranked", w.round).Spec}
	pod.Spec.PriorityClassName = name
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: crowded}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: crowded, Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	_, err := w.client.CoreV1().Pods(place).Create(ctx, pod, create)
	return err
}

// preempted checks that the pods of the last rounds run, and that the one before has gone.
func (w *work) preempted(ctx context.Context) error {
	pods := w.client.CoreV1().Pods(place)
	for round := max(1, w.round-seats+1); round <= w.round; round++ {
		pod, err := pods.Get(ctx, ranked(round), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			return fmt.Errorf("the pod %s does not run: %+v", pod.Name, pod.Status)
		}
	}
	if w.round <= seats {
		return nil
	}
	switch _, err := pods.Get(ctx, ranked(w.round-seats), metav1.GetOptions{}); {
	case err == nil:
		return errors.New("the pod with the lowest priority is there")
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}
