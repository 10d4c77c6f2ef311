package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/expectations"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// reconciler reads replica sets and pods. It creates and deletes the pods of
// replica sets, and it alone writes their status.
type reconciler struct {
	kind   kind
	gvk    schema.GroupVersionKind
	client client.Client
	live   client.Reader
	pods   pods.Control
	// writes and unknown are what the cache may not have yet of the pods.
	writes  expectations.Writes
	unknown expectations.UnknownOutcomes
	now     func() time.Time
}

// Reconcile syncs a replica set.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := r.kind.empty()
	if err := r.client.Get(ctx, req.NamespacedName, obj); apierrors.IsNotFound(err) {
		r.unknown.Forget(req.NamespacedName)
		r.writes.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	rs := r.kind.view(obj)
	s, err := selector(rs)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("selector of %s %s: %w", r.gvk.Kind, req, err))
	}
	pendingWrites := r.writes.Pending(req.NamespacedName)
	active, terminating, err := r.adopt(ctx, obj, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	var failure error
	if rs.DeletionTimestamp == nil {
		failure = r.scale(ctx, obj, active)
	}
	if failure == nil && !pendingWrites && r.writes.Pending(req.NamespacedName) {
		// A status would be outdated already. The next sync counts the pods, and
		// updates the status even if it creates or deletes pods itself.
		return reconcile.Result{RequeueAfter: minSyncInterval}, nil
	}
	now := r.now()
	status := nextStatus(rs, active, failure, now)
	if r.kind.terminating {
		count := int32(len(terminating))
		status.TerminatingReplicas = &count
	}
	err = r.updateStatus(ctx, obj, status)
	switch {
	case failure != nil:
		return reconcile.Result{}, errors.Join(failure, err)
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: minSyncInterval}, nil // another client has changed it since it was read
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: nextAvailable(active, rs.Spec.MinReadySeconds, now)}, nil
}

// adopt returns the active pods of the replica set, after it has adopted and
// released some, and those that are terminating. The cache owns them.
func (r *reconciler) adopt(ctx context.Context, obj client.Object, s labels.Selector) (active, terminating []*corev1.Pod, err error) {
	if err := r.writes.Await(ctx, r.client, client.ObjectKeyFromObject(obj), &corev1.Pod{}); err != nil {
		return nil, nil, err
	}
	owned, err := index.ControlledPods(ctx, r.client, obj.GetNamespace(), string(obj.GetUID()))
	if err != nil {
		return nil, nil, err
	}
	if owned, err = r.unknown.Pods(ctx, r.live, obj, s, owned); err != nil {
		return nil, nil, err
	}
	orphans, err := index.ControlledPods(ctx, r.client, obj.GetNamespace(), index.NoController)
	if err != nil {
		return nil, nil, err
	}
	var candidates []*corev1.Pod
	for _, pod := range append(owned, orphans...) {
		switch {
		case pods.IsActive(pod):
			candidates = append(candidates, pod)
		case pods.IsTerminating(pod) && adoption.Decide(obj, s, pod) == adoption.Owned:
			terminating = append(terminating, pod)
		}
	}
	active, err = adoption.Sync(ctx, adoption.Adopter{Client: r.client, Live: r.live, Owner: obj, Selector: s}, candidates)
	for _, pod := range active {
		if metav1.GetControllerOfNoCopy(pod) == nil { // adopted just now
			r.writes.Expect(client.ObjectKeyFromObject(obj), pod)
		}
	}
	return active, terminating, err
}

// scale creates or deletes pods.
func (r *reconciler) scale(ctx context.Context, obj client.Object, active []*corev1.Pod) error {
	rs := r.kind.view(obj)
	create, count := difference(*rs.Spec.Replicas, len(active))
	log := klog.FromContext(ctx).V(2)
	switch {
	case create > 0:
		log.Info("Creating pods", "replicas", *rs.Spec.Replicas, "count", create)
		return r.create(ctx, obj, &rs.Spec.Template, create)
	case count > 0:
		log.Info("Deleting pods", "replicas", *rs.Spec.Replicas, "count", count)
		related, err := r.related(ctx, rs, active)
		if err != nil {
			return err
		}
		excess := podsToDelete(active, related, count, r.now())
		_, err = pods.InBatches(count, count, func(i int) error {
			return r.note(obj, excess[i], r.pods.Delete(ctx, obj, excess[i]))
		})
		return err
	}
	return nil
}

func (r *reconciler) create(ctx context.Context, obj client.Object, template *corev1.PodTemplateSpec, count int) error {
	_, err := pods.InBatches(count, 1, func(int) error {
		pod := pods.FromTemplate(obj, r.gvk, template)
		return r.note(obj, pod, r.pods.Create(ctx, obj, pod))
	})
	if pods.NamespaceTerminates(err) {
		return nil // the replica set is deleted, too
	}
	return err
}

// note remembers what the next reconciliation must know of a pod's creation or
// deletion, and returns its error.
func (r *reconciler) note(owner client.Object, pod *corev1.Pod, err error) error {
	if err == nil {
		r.writes.Expect(client.ObjectKeyFromObject(owner), pod)
	}
	r.unknown.Record(client.ObjectKeyFromObject(owner), err)
	return err
}

// related returns the pods of all replica sets with the same controller, that is
// of all revisions of a deployment.
func (r *reconciler) related(ctx context.Context, rs *appsv1.ReplicaSet, own []*corev1.Pod) ([]*corev1.Pod, error) {
	ref := metav1.GetControllerOfNoCopy(rs)
	if ref == nil {
		return own, nil
	}
	siblings, err := r.kind.list(ctx, r.client, client.InNamespace(rs.Namespace), client.DisableReadYourWritesConsistency, client.MatchingFields{index.ByController(r.kind.empty()).Name: string(ref.UID)})
	if err != nil {
		return nil, err
	}
	var related []*corev1.Pod
	for _, sibling := range siblings {
		found, err := index.ControlledPods(ctx, r.client, rs.Namespace, string(sibling.UID))
		if err != nil {
			return nil, err
		}
		related = append(related, found...)
	}
	return related, nil
}

// updateStatus writes the status if it has changed. It fails with a conflict if the
// object was changed since it was read. A patch would not, but costs the API server
// a quarter more.
func (r *reconciler) updateStatus(ctx context.Context, obj client.Object, status appsv1.ReplicaSetStatus) error {
	stored := r.kind.view(obj).Status
	if stored.TerminatingReplicas == nil && ptr.Deref(status.TerminatingReplicas, -1) == 0 {
		// Releases before 1.33 do not have the field: its zero alone is no reason to write.
		stored.TerminatingReplicas = status.TerminatingReplicas
	}
	if apiequality.Semantic.DeepEqual(stored, status) {
		return nil
	}
	r.kind.setStatus(obj, status)
	if err := r.client.Status().Update(ctx, obj); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("update status of %s %s: %w", r.gvk.Kind, klog.KObj(obj), err))
	}
	return nil
}
