// Package tainteviction deletes pods from nodes with NoExecute taints that they
// do not tolerate, or not any longer.
package tainteviction

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    "tainteviction",
		Aliases: []string{"taint-eviction-controller"},
		Reads:   []client.Object{&corev1.Pod{}, &corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"pods"}, []string{"delete"}),
			controller.Can("", []string{"pods/status"}, []string{"update"}),
		},
		Setup: setup,
	}
}

const workers = 8

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode()); err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, recorder: env.Recorder("taint-eviction-controller"), now: env.Clock.Now,
		taints:    taints{now: env.Clock.Now, byNode: map[string]map[corev1.Taint]time.Time{}},
		scheduled: map[types.NamespacedName]types.UID{},
	}
	return controller.Run(env, controller.Options{Name: "tainteviction", Workers: workers}, r, r.watchNodes(env.Manager.GetCache()), r.watchPods())
}

// reconciler reads pods and nodes; it alone writes the pods' condition
// DisruptionTarget with the reason DeletionByTaintManager.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
	now      func() time.Time
	taints   taints

	mu sync.Mutex
	// scheduled are the pods that are to be evicted later. It serves the event of
	// a cancelled eviction only: what happens is decided anew each time.
	scheduled map[types.NamespacedName]types.UID
}

// Reconcile evicts a pod when its time has come.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	err := r.client.Get(ctx, req.NamespacedName, pod)
	if apierrors.IsNotFound(err) {
		r.cancel(req.NamespacedName, pod)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
		r.cancel(req.NamespacedName, pod)
		return reconcile.Result{}, nil
	}
	node := &corev1.Node{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the pods of a node that is gone are orphans
	}
	at, ok := evictAt(pod, noExecute(node), func(t corev1.Taint) time.Time { return r.taints.added(node.Name, t) })
	if !ok {
		r.cancel(req.NamespacedName, pod)
		return reconcile.Result{}, nil
	}
	if left := at.Sub(r.now()); left > 0 {
		r.schedule(req.NamespacedName, pod.UID)
		klog.FromContext(ctx).V(4).Info("A pod is to be evicted", "pod", klog.KObj(pod), "node", node.Name, "after", left)
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if err := r.evict(ctx, pod); err != nil {
		return reconcile.Result{}, err
	}
	r.unschedule(req.NamespacedName)
	return reconcile.Result{}, nil
}

// evict deletes the pod, with its grace period, and tells why in its status.
func (r *reconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	klog.FromContext(ctx).V(2).Info("Evicting a pod from a node with taints", "pod", klog.KObj(pod), "node", pod.Spec.NodeName)
	if pods.SetCondition(pod, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		Reason: "DeletionByTaintManager", Message: "Taint manager: deleting due to NoExecute taint",
	}, r.now()) {
		if err := r.client.Status().Update(ctx, pod); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	err := r.client.Delete(ctx, pod, &client.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod has its name
	}
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	r.recorder.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Marking for deletion Pod %s", client.ObjectKeyFromObject(pod))
	return nil
}

func (r *reconciler) schedule(key types.NamespacedName, uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scheduled[key] = uid
}

// unschedule forgets an eviction and returns of which pod, if there was one.
func (r *reconciler) unschedule(key types.NamespacedName) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := r.scheduled[key]
	delete(r.scheduled, key)
	return uid
}

// cancel tells that the pod is not to be evicted any more, if it was.
func (r *reconciler) cancel(key types.NamespacedName, pod *corev1.Pod) {
	uid := r.unschedule(key)
	if uid == "" || pod.DeletionTimestamp != nil {
		return
	}
	pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid}}
	r.recorder.Eventf(pod, corev1.EventTypeNormal, "TaintManagerEviction", "Cancelling deletion of Pod %s", key)
}
