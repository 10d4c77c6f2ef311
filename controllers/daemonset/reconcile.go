package daemonset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/daemonset/decide"
	"svc.dev/svc/controllers/history"
	"svc.dev/svc/controllers/owned"
	"svc.dev/svc/controllers/pods"
)

// reconciler reads daemon sets, their pods and revisions, and nodes. It creates and
// deletes the pods and revisions of daemon sets, and it alone writes their status.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
	kind     schema.GroupVersionKind
	control  pods.Control
	pods     owned.Pods
	history  history.History
	backoff  *backoff
	now      func() time.Time
}

// burst is the maximum number of pods that one sync creates or deletes, as in
// kube-controller-manager.
const burst = 250

// Reconcile performs the next steps of a daemon set. The events of its pods enqueue it
// for those after them.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ds := &appsv1.DaemonSet{}
	if err := r.client.Get(ctx, req.NamespacedName, ds); apierrors.IsNotFound(err) {
		r.pods.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if ds.DeletionTimestamp != nil {
		return reconcile.Result{}, nil // the garbage collector deletes the pods; the status stays as it is
	}
	s, err := selector(ds)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("selector of daemon set %s: %w", req, err))
	}
	if s.Empty() {
		r.recorder.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return reconcile.Result{}, nil
	}
	state, revisions, err := r.state(ctx, ds, s)
	if pods.NamespaceTerminates(err) {
		return reconcile.Result{}, nil // the set is deleted, too
	} else if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide.Decide(state)
	next, failure := r.do(ctx, ds, plan)
	err = r.report(ctx, ds, plan.Status)
	switch {
	case failure != nil:
		return reconcile.Result{}, errors.Join(failure, err)
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: minSyncInterval}, nil // another client has just written it
	case err != nil:
		return reconcile.Result{}, err
	}
	err = r.history.Delete(ctx, history.Beyond(revisions.All, inUse(&state), ds.Spec.RevisionHistoryLimit))
	return reconcile.Result{RequeueAfter: sooner(plan.After, next)}, err
}

// state reads what a plan is made from, after it has adopted pods and created the
// revision of the set's template.
func (r *reconciler) state(ctx context.Context, ds *appsv1.DaemonSet, s labels.Selector) (decide.State, history.Revisions, error) {
	state := decide.State{Set: ds, Kind: r.kind, Now: r.now(), Collisions: ds.Status.CollisionCount}
	var revisions history.Revisions
	var err error
	if state.Pods, err = r.pods.List(ctx, ds, s, nil); err != nil {
		return state, revisions, err
	}
	revisions, err = r.history.Sync(ctx, history.Owner{
		Object: ds, Selector: s, Template: &ds.Spec.Template, Collisions: ds.Status.CollisionCount, HashLabel: decide.HashLabel,
	})
	if err != nil {
		return state, revisions, err
	}
	state.Hash, state.Collisions = revisions.Newest.Labels[decide.HashLabel], revisions.Collisions
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return state, revisions, err
	}
	for i := range nodes.Items {
		state.Nodes = append(state.Nodes, &nodes.Items[i])
	}
	return state, revisions, nil
}

// do creates and deletes pods, and returns the time until the next failed pod may be
// deleted. The next sync does what is beyond the burst.
func (r *reconciler) do(ctx context.Context, ds *appsv1.DaemonSet, plan decide.Plan) (next time.Duration, err error) {
	deleted := plan.Delete
	for _, pod := range plan.Succeeded {
		r.recorder.Eventf(ds, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s/%s on node %s, will try to delete it", pod.Namespace, pod.Name, decide.NodeOf(pod))
	}
	failed, next := r.backoff.due(ds, plan.Failed)
	for _, pod := range failed {
		r.recorder.Eventf(ds, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", pod.Namespace, pod.Name, decide.NodeOf(pod))
	}
	deleted = append(append(deleted, plan.Succeeded...), failed...)
	create, remove := min(len(plan.Create), burst), min(len(deleted), burst)
	_, creation := pods.InBatches(create, 1, func(i int) error {
		pod := plan.Create[i]
		return r.pods.Wrote(ds, pod, r.control.Create(ctx, ds, pod))
	})
	if pods.NamespaceTerminates(creation) {
		creation = nil // the set is deleted, too
	}
	_, deletion := pods.InBatches(remove, max(remove, 1), func(i int) error {
		return r.pods.Wrote(ds, deleted[i], r.control.Delete(ctx, ds, deleted[i]))
	})
	return next, errors.Join(creation, deletion)
}

// inUse returns a function that reports whether the set or one of its pods has a revision.
func inUse(state *decide.State) func(*appsv1.ControllerRevision) bool {
	hashes := map[string]bool{state.Hash: true}
	for _, pod := range state.Pods {
		hashes[pod.Labels[decide.HashLabel]] = true
	}
	return func(r *appsv1.ControllerRevision) bool { return hashes[r.Labels[decide.HashLabel]] }
}

// report writes the status if it has changed. It fails with a conflict if another client
// has written the set since it was read.
func (r *reconciler) report(ctx context.Context, ds *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	if apiequality.Semantic.DeepEqual(ds.Status, status) {
		return nil
	}
	ds = ds.DeepCopy()
	ds.Status = status
	if err := r.client.Status().Update(ctx, ds); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("update status of daemon set %s: %w", klog.KObj(ds), err))
	}
	return nil
}

// sooner returns the shorter of two delays, of which 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
