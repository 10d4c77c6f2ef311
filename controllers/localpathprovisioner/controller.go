// Package localpathprovisioner owns the provisioner svc.dev/local-path, whose volumes
// are directories of nodes. The agents of the nodes create and remove the
// directories: see package localpath.
package localpathprovisioner

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/storage/volume"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/controllers/controller"
)

// ClassFlag is the flag of the storage class that is created at the start.
const ClassFlag = "local-path-class"

// New declares the controller.
func New() controller.Controller {
	o := &options{}
	return controller.Controller{
		Name:  "localpathprovisioner",
		Reads: []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.StorageClass{}, &corev1.Node{}},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("", []string{"persistentvolumes"}, []string{"create", "patch", "delete"}),
			controller.Can("", []string{"persistentvolumeclaims"}, []string{"patch"}),
			controller.Can("storage.k8s.io", []string{"storageclasses"}, []string{"create"}),
		},
		Flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.class, ClassFlag, o.class, "The storage class of the provisioner "+localpath.Provisioner+" to create at the start, unless one of the name exists. "+
				"It becomes the default if there is no other default. Empty creates none; svc up creates local-path.")
		},
		Validate: o.validate,
		Setup:    o.setup,
	}
}

type options struct {
	class string
}

func (o *options) validate() []error {
	if problems := validation.IsDNS1123Subdomain(o.class); o.class != "" && len(problems) > 0 {
		return []error{fmt.Errorf("--%s: invalid name %q: %s", ClassFlag, o.class, strings.Join(problems, "; "))}
	}
	return nil
}

const workers = 4

func (o *options) setup(_ context.Context, env *controller.Env) error {
	if o.class != "" {
		class := &classReconciler{client: env.Client}
		class.trigger.Enqueue(o.class)
		if err := controller.Run(env, controller.Options{Name: "localpathprovisioner-class", Workers: 1}, class, class.trigger.Watch()); err != nil {
			return err
		}
	}
	recorder := env.Recorder(localpath.Provisioner)
	wanted := predicate.NewPredicateFuncs(func(obj client.Object) bool { return requested(obj.(*corev1.PersistentVolumeClaim)) })
	err := controller.Run(env, controller.Options{Name: "localpathprovisioner-claims", Workers: workers},
		&claimReconciler{client: env.Client, recorder: recorder, scheme: env.Manager.GetScheme()},
		controller.For(&corev1.PersistentVolumeClaim{}, wanted))
	if err != nil {
		return err
	}
	made := predicate.NewPredicateFuncs(func(obj client.Object) bool { return localpath.Made(obj.(*corev1.PersistentVolume)) })
	w := watches{env.Manager.GetCache()}
	return controller.Run(env, controller.Options{Name: "localpathprovisioner-volumes", Workers: workers},
		&volumeReconciler{client: env.Client, live: env.Live},
		controller.For(&corev1.PersistentVolume{}, made),
		controller.Map(&corev1.Node{}, w.volumesOfNode, predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		}))
}

// requested reports whether a claim waits for a volume of the provisioner.
func requested(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[volume.AnnStorageProvisioner] == localpath.Provisioner && claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil
}

// watches maps events to requests.
type watches struct {
	cache client.Reader
}

// volumesOfNode returns the volumes of a node that was deleted.
func (w watches) volumesOfNode(ctx context.Context, node client.Object) []reconcile.Request {
	var list corev1.PersistentVolumeList
	if err := w.cache.List(ctx, &list, client.MatchingLabels{localpath.NodeLabel: node.GetName()}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the manager stops
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}
