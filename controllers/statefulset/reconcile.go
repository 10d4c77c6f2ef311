package statefulset

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

	"svc.dev/svc/controllers/discovery"
	"svc.dev/svc/controllers/history"
	"svc.dev/svc/controllers/owned"
	"svc.dev/svc/controllers/pods"
	"svc.dev/svc/controllers/statefulset/decide"
)

// reconciler reads stateful sets, their pods, claims and revisions. It creates and
// deletes the pods and revisions of stateful sets, creates their claims, and it
// alone writes their status.
type reconciler struct {
	client        client.Client
	recorder      record.EventRecorder
	kind, podKind schema.GroupVersionKind
	pods          owned.Pods
	history       history.History
	backoff       *backoff
	now           func() time.Time
	discovery     *discovery.Discovery
}

// conflictDelay is the time until a sync whose status met a newer state is repeated.
const conflictDelay = 100 * time.Millisecond

// Reconcile performs the next steps of a stateful set. The events of its pods
// enqueue it for those after them.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	set := &appsv1.StatefulSet{}
	if err := r.client.Get(ctx, req.NamespacedName, set); apierrors.IsNotFound(err) {
		r.pods.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	s, err := selector(set)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("selector of stateful set %s: %w", req, err))
	}
	if s.Empty() {
		return reconcile.Result{}, nil // it would adopt all pods
	}
	state, revisions, err := r.state(ctx, set, s)
	if pods.NamespaceTerminates(err) {
		return reconcile.Result{}, nil // the set is deleted, too
	} else if err != nil {
		return reconcile.Result{}, err
	}
	plan := decide.Decide(state)
	failure := r.do(ctx, set, plan.Actions)
	status := plan.Status
	if failure != nil {
		status = plan.Observed
	}
	if pods.NamespaceTerminates(failure) {
		failure = nil
	}
	err = r.report(ctx, set, status)
	if failure == nil && apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil // another client has just written it
	}
	if failure != nil || err != nil {
		return reconcile.Result{}, errors.Join(failure, err)
	}
	if set.DeletionTimestamp == nil {
		inUse := decide.InUse(&state, &status)
		err = r.history.Delete(ctx, history.Beyond(revisions.All, func(revision *appsv1.ControllerRevision) bool { return inUse.Has(revision.Name) }, set.Spec.RevisionHistoryLimit))
	}
	return reconcile.Result{RequeueAfter: plan.After}, err
}

// state reads what a plan is made from, after it has adopted pods and created the
// revision of the set's template.
func (r *reconciler) state(ctx context.Context, set *appsv1.StatefulSet, s labels.Selector) (decide.State, history.Revisions, error) {
	state := decide.State{Set: set, Kind: r.kind, PodKind: r.podKind, Now: r.now()}
	var err error
	if state.Release, err = r.discovery.Release(ctx); err != nil {
		return state, history.Revisions{}, err
	}
	found, err := r.pods.List(ctx, set, s, func(pod *corev1.Pod) bool {
		_, ok := decide.Ordinal(set, pod.Name)
		return ok
	})
	if err != nil {
		return state, history.Revisions{}, err
	}
	state.Pods, state.Delays = found, r.backoff.delays(set, found)
	revisions := history.Revisions{}
	if set.DeletionTimestamp == nil {
		revisions, err = r.history.Sync(ctx, history.Owner{Object: set, Selector: s, Template: &set.Spec.Template, Collisions: set.Status.CollisionCount})
		if err != nil {
			return state, revisions, err
		}
		state.Collisions = revisions.Collisions
		if state.Update, state.Current, err = revisionsOf(set, revisions); err != nil {
			return state, revisions, err
		}
	} else {
		state.Collisions = set.Status.CollisionCount
		state.Update.Name, state.Current.Name = set.Status.UpdateRevision, set.Status.CurrentRevision
	}
	state.Claims, err = r.claims(ctx, &state)
	return state, revisions, err
}

// revisionsOf returns the revision with the set's template, and the one that the
// last complete rollout had: the same one if that has gone.
func revisionsOf(set *appsv1.StatefulSet, revisions history.Revisions) (update, current decide.Revision, err error) {
	update = decide.Revision{Name: revisions.Newest.Name, Template: &set.Spec.Template}
	current = update
	for _, revision := range revisions.All {
		if revision.Name == set.Status.CurrentRevision && revision.Name != update.Name {
			current.Name = revision.Name
			if current.Template, err = history.Template(revision); err != nil {
				return update, current, err
			}
		}
	}
	return update, current, nil
}

// claims returns the claims of all ordinals that exist. They belong to the cache.
func (r *reconciler) claims(ctx context.Context, state *decide.State) (map[string]*corev1.PersistentVolumeClaim, error) {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range decide.ClaimNames(state) {
		claim := &corev1.PersistentVolumeClaim{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: state.Set.Namespace, Name: name}, claim, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if err == nil {
			claims[name] = claim
		}
	}
	return claims, nil
}

// report writes the status if it has changed. It fails with a conflict if another
// client has written the set since it was read.
func (r *reconciler) report(ctx context.Context, set *appsv1.StatefulSet, status appsv1.StatefulSetStatus) error {
	if apiequality.Semantic.DeepEqual(set.Status, status) {
		return nil
	}
	set = set.DeepCopy()
	set.Status = status
	if err := r.client.Status().Update(ctx, set); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("update status of stateful set %s: %w", klog.KObj(set), err))
	}
	return nil
}
