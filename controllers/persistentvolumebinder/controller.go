// Package persistentvolumebinder owns the controller that binds persistent volume
// claims to volumes, requests volumes from provisioners, and reports what becomes of
// volumes whose claims were deleted. Package binding makes the decisions.
package persistentvolumebinder

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
	"svc.dev/svc/controllers/persistentvolumebinder/binding"
)

// New declares the controller.
func New() controller.Controller {
	return controller.Controller{
		Name:    "persistentvolumebinder",
		Aliases: []string{"persistentvolume-binder", "persistentvolume-binder-controller"},
		Reads:   []client.Object{&corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &storagev1.StorageClass{}, &corev1.Pod{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"persistentvolumes", "persistentvolumeclaims"}, []string{"patch"}),
			controller.Can("", []string{"persistentvolumes/status", "persistentvolumeclaims/status"}, []string{"patch"}),
		},
		Setup: setup,
	}
}

const workers = 8

func setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, volumesByClaim(), unboundByClass(), waitingByVolume(), index.PodsByClaim()); err != nil {
		return err
	}
	b := binder{client: env.Client, live: env.Live, recorder: env.Recorder("persistentvolume-controller")}
	stock := &binding.Stock{}
	classes := &classReconciler{cache: env.Manager.GetCache()}
	claims := &claimReconciler{binder: b, stock: stock, classSyncs: &classes.trigger, now: env.Clock.Now}
	classes.claims = &claims.trigger
	volumes := &volumeReconciler{binder: b, claims: &claims.trigger}
	w := watches{env.Manager.GetCache()}
	never := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return true },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	err := controller.Run(env, controller.Options{Name: "persistentvolumebinder-claims", Workers: workers}, claims,
		controller.For(&corev1.PersistentVolumeClaim{}),
		w.volumeEvents(stock, &classes.trigger),
		controller.Map(&corev1.Pod{}, w.claimsOfPod, never),
		claims.trigger.Watch())
	if err != nil {
		return err
	}
	err = controller.Run(env, controller.Options{Name: "persistentvolumebinder-classes", Workers: 1, MinInterval: classInterval}, classes,
		classEvents(), classes.trigger.Watch())
	if err != nil {
		return err
	}
	return controller.Run(env, controller.Options{Name: "persistentvolumebinder-volumes", Workers: workers}, volumes,
		controller.For(&corev1.PersistentVolume{}),
		controller.Map(&corev1.PersistentVolumeClaim{}, w.volumesOfClaim))
}

// volumesByClaim finds volumes by the claims that they name.
func volumesByClaim() controller.Index {
	return controller.Index{Name: "claim", Object: &corev1.PersistentVolume{}, Values: func(obj client.Object) []string {
		if ref := obj.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil {
			return []string{ref.Namespace + "/" + ref.Name}
		}
		return nil
	}}
}

// unboundByClass finds claims that are not bound by the names of their classes.
func unboundByClass() controller.Index {
	return controller.Index{Name: "unbound-class", Object: &corev1.PersistentVolumeClaim{}, Values: func(obj client.Object) []string {
		claim := obj.(*corev1.PersistentVolumeClaim)
		if _, bound := claim.Annotations[volume.AnnBindCompleted]; bound {
			return nil
		}
		return []string{classValue(volume.GetPersistentVolumeClaimClass(claim))}
	}}
}

// waitingByVolume finds claims that are not bound, or have lost their volume, by the volume
// that they name.
func waitingByVolume() controller.Index {
	return controller.Index{Name: "waiting-volume", Object: &corev1.PersistentVolumeClaim{}, Values: func(obj client.Object) []string {
		claim := obj.(*corev1.PersistentVolumeClaim)
		if claim.Spec.VolumeName == "" || claim.Status.Phase == corev1.ClaimBound {
			return nil
		}
		return []string{claim.Spec.VolumeName}
	}}
}

// classValue is the value of a class in an index, which must not be empty.
func classValue(class string) string { return "class " + class }

// watches maps events to requests.
type watches struct {
	cache client.Reader
}

// volumeEvents keeps the stock up to date, enqueues the claims that volumes name and those
// that wait for them by name, and requests a sync of the classes with a volume that claims
// can take, whose claims are synced after the volume is in the stock. No claim is synced
// before the stock has the volumes that exist at the start.
func (w watches) volumeEvents(stock *binding.Stock, classes *controller.Trigger[string]) controller.Watch[reconcile.Request] {
	set := func(ctx context.Context, q controller.Queue[reconcile.Request], obj client.Object) {
		pv := obj.(*corev1.PersistentVolume)
		stock.Set(pv)
		if binding.Available(pv) {
			classes.Enqueue(volume.GetPersistentVolumeClass(pv))
		}
		w.enqueueClaims(ctx, q, pv)
	}
	return controller.Watch[reconcile.Request]{Object: &corev1.PersistentVolume{}, Handler: handler.TypedFuncs[client.Object, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q controller.Queue[reconcile.Request]) {
			set(ctx, q, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q controller.Queue[reconcile.Request]) {
			set(ctx, q, e.ObjectNew)
			w.enqueueClaims(ctx, q, e.ObjectOld)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q controller.Queue[reconcile.Request]) {
			stock.Remove(e.Object.GetName())
			w.enqueueClaims(ctx, q, e.Object)
		},
	}}
}

// enqueueClaims enqueues the claim that a volume names, or those that wait for a volume
// without a claim.
func (w watches) enqueueClaims(ctx context.Context, q controller.Queue[reconcile.Request], obj client.Object) {
	if ref := obj.(*corev1.PersistentVolume).Spec.ClaimRef; ref != nil {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
		return
	}
	var list corev1.PersistentVolumeClaimList
	if err := w.cache.List(ctx, &list, client.MatchingFields{waitingByVolume().Name: obj.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return // the manager stops
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}

// claimsOfPod returns the claims that a new pod uses, whose events say that they wait
// for it.
func (w watches) claimsOfPod(ctx context.Context, obj client.Object) []reconcile.Request {
	pod := obj.(*corev1.Pod)
	if pod.Spec.NodeName != "" {
		return nil
	}
	var requests []reconcile.Request
	for i := range pod.Spec.Volumes {
		name := ""
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = ephemeral.VolumeClaimName(pod, v)
		default:
			continue
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: name}
		claim := &corev1.PersistentVolumeClaim{}
		if err := w.cache.Get(ctx, key, claim, client.UnsafeDisableDeepCopy); err == nil && claim.Spec.VolumeName == "" {
			requests = append(requests, reconcile.Request{NamespacedName: key})
		}
	}
	return requests
}

// volumesOfClaim returns the volume that a claim names, and those that name it.
func (w watches) volumesOfClaim(ctx context.Context, obj client.Object) []reconcile.Request {
	claim := obj.(*corev1.PersistentVolumeClaim)
	var requests []reconcile.Request
	if claim.Spec.VolumeName != "" {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: claim.Spec.VolumeName}})
	}
	var list corev1.PersistentVolumeList
	if err := w.cache.List(ctx, &list, client.MatchingFields{volumesByClaim().Name: claim.Namespace + "/" + claim.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return requests // the manager stops
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
