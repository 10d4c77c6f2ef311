package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/adoption"
	"svc.dev/svc/controllers/deployment/rollout"
	"svc.dev/svc/controllers/expectations"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// reconciler reads deployments and their replica sets, and for the strategy
// Recreate their pods. It creates, scales and deletes the replica sets of
// deployments. It is the only writer of the status and the revision of
// deployments, and rolls back those whose annotation requests it.
type reconciler struct {
	client   client.Client
	live     client.Reader
	recorder record.EventRecorder
	gvk      schema.GroupVersionKind
	now      func() time.Time

	// writes are the replica sets that the cache may not have yet.
	writes expectations.Writes
}

// Reconcile performs the next step of a rollout. The events of its replica sets
// enqueue the deployment for the step after it.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	d := &appsv1.Deployment{}
	if err := r.client.Get(ctx, req.NamespacedName, d); apierrors.IsNotFound(err) {
		r.writes.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	s, err := selector(d)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("selector of deployment %s: %w", req, err))
	}
	if s.Empty() {
		r.recorder.Event(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		return reconcile.Result{}, nil
	}
	candidates, err := r.candidates(ctx, d)
	if err != nil {
		return reconcile.Result{}, err
	}
	sets, err := adoption.Sync(ctx, adoption.Adopter{Client: r.client, Live: r.live, Owner: d, Selector: s}, candidates)
	if err != nil {
		return reconcile.Result{}, err
	}
	if back := rollout.RollBack(d, sets); back != nil {
		return r.rollBack(ctx, back)
	}
	running, err := r.running(ctx, d, sets)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := rollout.Decide(rollout.State{Deployment: d, Sets: sets, Running: running, Now: r.now()})
	for _, action := range plan.Actions {
		if err := r.do(ctx, d, action); pods.NamespaceTerminates(err) {
			return reconcile.Result{}, nil // the deployment will be deleted, too
		} else if err != nil {
			return reconcile.Result{}, err
		}
	}
	if wait := plan.StatusWait(d, r.now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.report(ctx, d, plan.Revision, plan.Status); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: minSyncInterval}, nil // another client has just written it
	} else if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: plan.After}, nil
}

// rollBack writes a deployment that a client has requested to be rolled back. The event of
// the write enqueues it for the rollout.
func (r *reconciler) rollBack(ctx context.Context, back *rollout.Rollback) (reconcile.Result, error) {
	d := back.Deployment
	err := r.client.Update(ctx, d)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: minSyncInterval}, nil // another client has just written it
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("roll back deployment %s: %w", klog.KObj(d), err))
	}
	r.recorder.Event(d, back.EventType, back.Reason, back.Message)
	return reconcile.Result{}, nil
}

// candidates returns the replica sets of the namespace that the deployment
// controls or may adopt. They belong to the cache and must not be changed.
func (r *reconciler) candidates(ctx context.Context, d *appsv1.Deployment) ([]*appsv1.ReplicaSet, error) {
	if err := r.writes.Await(ctx, r.client, client.ObjectKeyFromObject(d), &appsv1.ReplicaSet{}); err != nil {
		return nil, err
	}
	var found []*appsv1.ReplicaSet
	for _, controller := range []string{string(d.UID), index.NoController} {
		var list appsv1.ReplicaSetList
		if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace),
			client.MatchingFields{index.ByController(&appsv1.ReplicaSet{}).Name: controller},
			client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
			return nil, err
		}
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// running returns the number of pods of each replica set that have not
// terminated. It is nil for strategies other than Recreate.
func (r *reconciler) running(ctx context.Context, d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (map[types.UID]int, error) {
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil, nil
	}
	count := map[types.UID]int{}
	for _, rs := range sets {
		var list corev1.PodList
		if err := r.client.List(ctx, &list, client.InNamespace(d.Namespace),
			client.MatchingFields{index.ByController(&corev1.Pod{}).Name: string(rs.UID)}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range list.Items {
			if !pods.IsTerminal(&list.Items[i]) {
				count[rs.UID]++
			}
		}
	}
	return count, nil
}

// do executes an action on one replica set.
func (r *reconciler) do(ctx context.Context, d *appsv1.Deployment, action rollout.Action) error {
	var err error
	switch action.Verb {
	case rollout.Create:
		err = r.create(ctx, d, action.Set.DeepCopy())
	case rollout.Change:
		err = r.change(ctx, action.Set, action.Was)
	case rollout.Delete:
		klog.FromContext(ctx).V(2).Info("Deleting replica set beyond the revision history limit", "replicaSet", klog.KObj(action.Set))
		target := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: action.Set.Name}}
		err = client.IgnoreNotFound(r.client.Delete(ctx, target, client.Preconditions{UID: ptr.To(action.Set.UID)}))
	}
	if err != nil {
		return fmt.Errorf("%s replica set %s/%s: %w", action.Verb, d.Namespace, action.Set.Name, err)
	}
	r.writes.Expect(client.ObjectKeyFromObject(d), action.Set)
	for _, message := range action.Events {
		r.recorder.Event(d, corev1.EventTypeNormal, "ScalingReplicaSet", message)
	}
	return nil
}

// create creates a replica set. If its name is taken by another object, it
// increases the collision count, so that the next sync uses another name.
func (r *reconciler) create(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet) error {
	rs.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, r.gvk)}
	err := r.client.Create(ctx, rs)
	switch {
	case err == nil || pods.NamespaceTerminates(err):
		return err
	case apierrors.IsAlreadyExists(err):
		return r.collide(ctx, d, rs, err)
	}
	message := fmt.Sprintf("Failed to create new replica set %q: %v", rs.Name, err)
	r.recorder.Event(d, corev1.EventTypeWarning, rollout.ReplicaSetCreateError, message)
	if failure := r.report(ctx, d, d.Annotations[rollout.Revision], rollout.CreationFailed(d, message, r.now())); failure != nil {
		klog.FromContext(ctx).Error(failure, "Failed to report replica set creation error in deployment status", "deployment", klog.KObj(d))
	}
	return err
}

// collide handles a name that is taken. If the object is the replica set itself,
// because the response to an earlier creation was lost, the cache will have it
// soon. Otherwise it increases the collision count.
func (r *reconciler) collide(ctx context.Context, d *appsv1.Deployment, rs *appsv1.ReplicaSet, exists error) error {
	var taken appsv1.ReplicaSet
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(rs), &taken); err != nil {
		return err
	}
	if metav1.IsControlledBy(&taken, d) && rollout.SameTemplate(&taken.Spec.Template, &d.Spec.Template) {
		return exists
	}
	status := d.Status.DeepCopy()
	status.CollisionCount = ptr.To(ptr.Deref(status.CollisionCount, 0) + 1)
	klog.FromContext(ctx).V(2).Info("Found a collision of replica set names, will use another name", "replicaSet", klog.KObj(rs), "collisionCount", *status.CollisionCount)
	if err := r.report(ctx, d, d.Annotations[rollout.Revision], *status); err != nil {
		return err
	}
	return exists
}

// change writes the fields of rs that differ from was.
func (r *reconciler) change(ctx context.Context, rs, was *appsv1.ReplicaSet) error {
	meta, spec := map[string]any{"uid": rs.UID}, map[string]any{}
	annotations := map[string]string{}
	for key, value := range rs.Annotations {
		if before, ok := was.Annotations[key]; !ok || before != value {
			annotations[key] = value
		}
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if *rs.Spec.Replicas != *was.Spec.Replicas {
		spec["replicas"] = *rs.Spec.Replicas
	}
	if rs.Spec.MinReadySeconds != was.Spec.MinReadySeconds {
		spec["minReadySeconds"] = rs.Spec.MinReadySeconds
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": spec})
	if err != nil {
		return err
	}
	target := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: rs.Namespace, Name: rs.Name}}
	return r.client.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch))
}

// report writes the revision and the status if they have changed. It fails with a
// conflict if another client has written the deployment since it was read.
func (r *reconciler) report(ctx context.Context, d *appsv1.Deployment, revision string, status appsv1.DeploymentStatus) error {
	if d.Annotations[rollout.Revision] == revision && apiequality.Semantic.DeepEqual(d.Status, status) {
		return nil
	}
	d = d.DeepCopy()
	d.Status = status
	if d.Annotations[rollout.Revision] != revision {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, rollout.Revision, revision)
	}
	if err := r.client.Status().Update(ctx, d); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("status of deployment %s: %w", klog.KObj(d), err))
	}
	return nil
}
