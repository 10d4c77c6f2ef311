package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/pods"
	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/extender"
)

// binder binds pods and their volume claims. client waits until the cache has its
// writes, plain does not, and live reads from the API server.
type binder struct {
	client, plain client.Client
	live          client.Reader
	extenders     []*extender.Extender
}

// retryPeriod is the time between two attempts to read a pod whose binding had no
// response.
const retryPeriod = time.Second

// bind binds a pod to a node and reports whether it is bound there. If it is not,
// the error says why; it is nil for a pod that needs no node any more. After an
// error the outcome is unknown, as the response may have been lost: bind reads the
// pod from the API server until it gets a response or ctx is done.
func (b *binder) bind(ctx context.Context, pod *corev1.Pod, node string) (bool, error) {
	err := b.request(ctx, pod, node)
	if err == nil {
		return true, nil
	}
	now := &corev1.Pod{}
	if err := wait.PollUntilContextCancel(ctx, retryPeriod, true, func(ctx context.Context) (bool, error) {
		err := b.live.Get(ctx, client.ObjectKeyFromObject(pod), now)
		if apierrors.IsNotFound(err) {
			now.UID = ""
			return true, nil
		}
		return err == nil, nil
	}); err != nil {
		return false, nil // the scheduler stops
	}
	switch {
	case now.UID != pod.UID, now.DeletionTimestamp != nil, pods.NamespaceTerminates(err):
		return false, nil
	case now.Spec.NodeName != "":
		return now.Spec.NodeName == node, nil
	}
	return false, err
}

// request asks the API server, or the extender that binds the pod, for a binding. An
// extender that may be ignored is replaced if it fails.
func (b *binder) request(ctx context.Context, pod *corev1.Pod, node string) error {
	for _, e := range b.extenders {
		if !e.Binds() || !e.Extends(pod) {
			continue
		}
		err := e.Bind(ctx, pod, node)
		if err == nil || !e.Ignorable() {
			return err
		}
		klog.FromContext(ctx).Error(err, "Failed to bind pod by a scheduler extender, will bind it without", "pod", klog.KObj(pod))
	}
	return b.plain.SubResource("binding").Create(ctx, pod, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	})
}

// expect nominates the pod of a step to its node, if it is not bound at once: others, such as an
// autoscaler, learn by that where it is going to run (KEP-5278). Without it, the pod is bound all the
// same.
func (b *binder) expect(ctx context.Context, s step) {
	if len(s.claims) == 0 && !s.waits || s.pod.Status.NominatedNodeName == s.node() {
		return
	}
	if err := nominate(ctx, b.plain, s.pod, s.node()); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Failed to nominate pod, will bind it without", "pod", klog.KObj(s.pod), "node", s.node())
	}
}

// bindClaims reserves a volume for each claim of a pod, or selects the node for the
// provisioner of the claim's class. The volume controllers complete the binding.
// It fails if another claim has got the volume.
func (b *binder) bindClaims(ctx context.Context, pod *corev1.Pod, node string, claims []decision.ClaimDecision) error {
	for _, d := range claims {
		claim := &corev1.PersistentVolumeClaim{}
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: d.Claim}, claim); err != nil {
			return fmt.Errorf("claim %s: %w", d.Claim, err)
		}
		var err error
		if d.Volume == "" {
			err = b.provision(ctx, claim, node)
		} else {
			err = b.reserve(ctx, claim, d.Volume)
		}
		if err != nil {
			return fmt.Errorf("claim %s: %w", d.Claim, err)
		}
	}
	return nil
}

// provision requests a volume that can be used on a node.
func (b *binder) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string) error {
	if claim.Annotations[volume.AnnSelectedNode] == node {
		return nil
	}
	before := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[volume.AnnSelectedNode] = node
	return b.client.Patch(ctx, claim, before)
}

// reserve sets the claim reference of a volume.
func (b *binder) reserve(ctx context.Context, claim *corev1.PersistentVolumeClaim, name string) error {
	pv := &corev1.PersistentVolume{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: name}, pv); err != nil {
		return err
	}
	if pv.Spec.ClaimRef != nil && !volume.IsVolumeBoundToClaim(pv, claim) {
		return fmt.Errorf("volume %s was taken by claim %s/%s", name, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)
	}
	reserved, changed, err := volume.GetBindVolumeToClaim(pv, claim)
	if err != nil || !changed {
		return err
	}
	return b.client.Patch(ctx, reserved, client.MergeFromWithOptions(pv, client.MergeFromWithOptimisticLock{}))
}
