// Package ephemeralvolume owns the controller of generic ephemeral volumes: it creates
// their claims, which are deleted with their pods.
package ephemeralvolume

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/pods"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{concurrent: 5}
	return controller.Controller{
		Name:    "ephemeralvolume",
		Aliases: []string{"ephemeral-volume", "ephemeral-volume-controller"},
		Reads:   []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"persistentvolumeclaims"}, []string{"create"}),
			// To create claims with blockOwnerDeletion.
			controller.Can("", []string{"pods/finalizers"}, []string{"update"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.IntVar(&o.concurrent, concurrentFlag, o.concurrent, "How many pods with generic ephemeral volumes are synced at the same time.")
		},
		Validate: func() []error { return controller.AtLeastOne(concurrentFlag, o.concurrent) },
		Setup:    o.setup,
	}
}

const concurrentFlag = "concurrent-ephemeralvolume-syncs"

type options struct {
	concurrent int
}

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByClaim()); err != nil {
		return err
	}
	podKind, err := env.Client.GroupVersionKindFor(&corev1.Pod{})
	if err != nil {
		return err
	}
	w := watches{env.Manager.GetCache()}
	wanted := predicate.NewPredicateFuncs(func(obj client.Object) bool { return len(volumes(obj.(*corev1.Pod))) > 0 })
	return controller.Run(env, controller.Options{Name: "ephemeralvolume", Workers: o.concurrent},
		&reconciler{client: env.Client, recorder: env.Recorder("ephemeral_volume"), podKind: podKind},
		controller.For(&corev1.Pod{}, wanted, predicate.Funcs{
			UpdateFunc: func(event.UpdateEvent) bool { return false }, // the volumes of a pod do not change
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		}),
		controller.Map(&corev1.PersistentVolumeClaim{}, w.podsOfClaim, predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		}))
}

// volumes returns the generic ephemeral volumes of a pod.
func volumes(pod *corev1.Pod) []*corev1.Volume {
	var found []*corev1.Volume
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral != nil {
			found = append(found, &pod.Spec.Volumes[i])
		}
	}
	return found
}

// watches maps events to pods.
type watches struct {
	cache client.Reader
}

// podsOfClaim returns the pods that use a claim that was deleted.
func (w watches) podsOfClaim(ctx context.Context, claim client.Object) []reconcile.Request {
	var list corev1.PodList
	err := w.cache.List(ctx, &list, client.InNamespace(claim.GetNamespace()), client.MatchingFields{index.PodsByClaim().Name: claim.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the manager stops
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if len(volumes(&list.Items[i])) > 0 {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// reconciler reads pods and claims. It creates the claims of pods' generic ephemeral
// volumes.
type reconciler struct {
	client   client.Client
	recorder record.EventRecorder
	podKind  schema.GroupVersionKind
}

// Reconcile creates the claims of a pod that do not exist.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, req.NamespacedName, pod, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	for _, v := range volumes(pod) {
		if err := r.ensure(ctx, pod, v); err != nil {
			return reconcile.Result{}, err
		}
	}
	return reconcile.Result{}, nil
}

// ensure creates the claim of a volume, if it does not exist. One of its name that
// does not belong to the pod is an error.
func (r *reconciler) ensure(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) error {
	claim := r.claim(pod, v)
	existing := &corev1.PersistentVolumeClaim{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(claim), existing, client.UnsafeDisableDeepCopy)
	if err == nil {
		if err := ephemeral.VolumeIsForPod(pod, existing); err != nil {
			r.recorder.Event(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume: "+err.Error())
			return fmt.Errorf("claim of volume %s: %w", v.Name, err)
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	err = r.client.Create(ctx, claim)
	switch {
	case pods.NamespaceTerminates(err):
		return nil
	case err != nil:
		r.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedBinding", "ephemeral volume: create PVC %s: %s", claim.Name, err)
		return fmt.Errorf("create claim %s of pod %s/%s: %w", claim.Name, pod.Namespace, pod.Name, err)
	}
	return nil
}

// claim returns the claim of a volume, which the garbage collector deletes with the
// pod.
func (r *reconciler) claim(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v), Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, r.podKind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}
}
