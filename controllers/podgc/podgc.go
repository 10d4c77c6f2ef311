// Package podgc deletes pods that nobody else would: those whose node is gone,
// those that are being deleted and have no node, those on nodes that are out of
// service, and the oldest of too many that have ended.
package podgc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{threshold: 12500}
	return controller.Controller{
		Name:    "podgc",
		Aliases: []string{"pod-garbage-collector-controller"},
		Reads:   []client.Object{&corev1.Pod{}, &corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.threshold, "terminated-pod-gc-threshold", o.threshold,
				"How many pods that have ended may exist before the oldest are deleted. 0 or less: any number.")
		},
		Setup: o.setup,
	}
}

type options struct {
	threshold int
}

const workers = 8

// quarantine is how long the node of a pod must be missing before the pod is
// taken for an orphan.
const quarantine = 40 * time.Second

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode(), byEnd()); err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, now: env.Clock.Now,
		threshold: o.threshold, quarantine: quarantine, missing: map[string]time.Time{},
	}
	w := &watcher{threshold: o.threshold, nodes: map[string]bool{}}
	return controller.Run(env, "podgc", workers, r, w.pods(), w.nodesWatch())
}

// byEnd finds the pods that have ended.
func byEnd() controller.Index {
	return controller.Index{Name: "ended", Object: &corev1.Pod{}, Values: func(obj client.Object) []string {
		if pods.IsTerminal(obj.(*corev1.Pod)) {
			return []string{ended}
		}
		return nil
	}}
}

// ended is the value of byEnd.
const ended = "true"

// request is what to look at: a pod, or all pods of a node that is missing or
// out of service, or, if it is empty, the pods that have ended.
type request struct {
	pod  types.NamespacedName
	node string
}

// reconciler reads pods and nodes. It makes pods failed that it deletes while
// they run, and it alone writes their condition DisruptionTarget with the reason
// DeletionByPodGC.
type reconciler struct {
	client     client.Client
	live       client.Reader
	now        func() time.Time
	threshold  int
	quarantine time.Duration

	mu      sync.Mutex
	missing map[string]time.Time // since when nodes with pods are missing
}

// Reconcile deletes what is garbage of what the request names.
func (r *reconciler) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	switch {
	case req.pod.Name != "":
		return reconcile.Result{}, r.reconcilePod(ctx, req.pod)
	case req.node != "":
		after, err := r.reconcileNode(ctx, req.node)
		return reconcile.Result{RequeueAfter: after}, err
	default:
		return reconcile.Result{}, r.reconcileEnded(ctx)
	}
}

func (r *reconciler) reconcilePod(ctx context.Context, key types.NamespacedName) error {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, key, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	var node *corev1.Node
	if pod.Spec.NodeName != "" {
		node = &corev1.Node{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if !garbage(pod, node) {
		return nil
	}
	return r.delete(ctx, pod, nil)
}

// reconcileNode deletes the pods of a node that is gone, and those of a node out
// of service that are being deleted. It returns after which time to look again.
func (r *reconciler) reconcileNode(ctx context.Context, name string) (time.Duration, error) {
	var theirs corev1.PodList
	if err := r.client.List(ctx, &theirs, client.MatchingFields{index.PodsByNode().Name: name}, client.UnsafeDisableDeepCopy); err != nil {
		return 0, err
	}
	node := &corev1.Node{}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	if err == nil || len(theirs.Items) == 0 {
		r.found(name)
		return 0, r.deleteAll(ctx, theirs.Items, nil, func(pod *corev1.Pod) bool { return garbage(pod, node) })
	}
	if left := r.missingSince(name).Add(r.quarantine).Sub(r.now()); left > 0 {
		return left, nil
	}
	// The cache may be behind.
	err = r.live.Get(ctx, client.ObjectKey{Name: name}, node)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("node %s: %w", name, err)
	}
	if err == nil {
		r.found(name)
		return r.quarantine, nil
	}
	if err := r.deleteAll(ctx, theirs.Items, nodeGone(), func(*corev1.Pod) bool { return true }); err != nil {
		return 0, err
	}
	r.found(name)
	return 0, nil
}

// deleteAll deletes those of the cache's pods that are garbage.
func (r *reconciler) deleteAll(ctx context.Context, all []corev1.Pod, why *corev1.PodCondition, garbage func(*corev1.Pod) bool) error {
	var errs []error
	for i := range all {
		if garbage(&all[i]) {
			errs = append(errs, r.delete(ctx, all[i].DeepCopy(), why))
		}
	}
	return errors.Join(errs...)
}

// nodeGone is the condition of orphans.
func nodeGone() *corev1.PodCondition {
	return &corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
	}
}

// missingSince notes that the node is missing and tells since when.
func (r *reconciler) missingSince(node string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, ok := r.missing[node]
	if !ok {
		since = r.now()
		r.missing[node] = since
	}
	return since
}

// found forgets that the node was missing.
func (r *reconciler) found(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.missing, node)
}

func (r *reconciler) reconcileEnded(ctx context.Context) error {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.MatchingFields{byEnd().Name: ended}, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	candidates := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		candidates[i] = &list.Items[i]
	}
	var errs []error
	for _, pod := range excess(candidates, r.threshold) {
		errs = append(errs, r.delete(ctx, pod.DeepCopy(), nil))
	}
	return errors.Join(errs...)
}

// delete ends the pod without waiting for a node agent. A pod that has not ended
// by then has failed, with the condition, if there is one, that says why.
func (r *reconciler) delete(ctx context.Context, pod *corev1.Pod, why *corev1.PodCondition) error {
	klog.FromContext(ctx).V(2).Info("Deleting a pod by force", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "phase", pod.Status.Phase)
	if !pods.IsTerminal(pod) {
		pod.Status.Phase, pod.Status.ObservedGeneration = corev1.PodFailed, pod.Generation
		if why != nil {
			pods.SetCondition(pod, *why, r.now())
		}
		if err := r.client.Status().Update(ctx, pod); err != nil {
			return ignoreGone(fmt.Errorf("status of pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	err := r.client.Delete(ctx, pod, &client.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if apierrors.IsConflict(err) {
		return nil // another pod has its name now
	}
	if err != nil {
		return ignoreGone(fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	return nil
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
