// Package attachdetach owns the controller that requests the attachment of volumes to the
// nodes of the pods that use them, and the end of attachments that no pod needs. The
// drivers of the volumes act on these requests, which are VolumeAttachments.
package attachdetach

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/storage/ephemeral"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlevent "sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"svc.dev/svc/controllers/controller"
	"svc.dev/svc/controllers/index"
)

// New declares the controller.
func New() controller.Controller {
	o := &options{period: time.Minute}
	return controller.Controller{
		Name:    "attachdetach",
		Aliases: []string{"persistentvolume-attach-detach-controller"},
		Reads: []client.Object{
			&corev1.Node{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.VolumeAttachment{}, &storagev1.CSIDriver{},
		},
		Permissions: []rbacv1.PolicyRule{
			controller.Can("storage.k8s.io", []string{"volumeattachments"}, []string{"create", "delete"}),
			controller.Can("", []string{"nodes/status"}, []string{"patch"}),
		},
		Flags:    o.addFlags,
		Validate: o.validate,
		Setup:    o.setup,
	}
}

const (
	noForceFlag = "disable-force-detach-on-timeout"
	periodFlag  = "attach-detach-reconcile-sync-period"
	noSyncFlag  = "disable-attach-detach-reconcile-sync"
)

type options struct {
	noForce, noSync bool
	period          time.Duration
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	const unused = "Has no effect: VolumeAttachments are watched, and no other state is kept that could differ from them."
	fs.BoolVar(&o.noForce, noForceFlag, o.noForce, "Keep a volume that its node may still use attached for any time while the node is not ready or deleted, unless it has the taint "+corev1.TaintNodeOutOfService+". Otherwise it is detached after six minutes.")
	fs.DurationVar(&o.period, periodFlag, o.period, unused)
	fs.BoolVar(&o.noSync, noSyncFlag, o.noSync, unused)
}

func (o *options) validate() []error {
	if o.period < time.Second {
		return []error{fmt.Errorf("--%s: %s must be at least 1s", periodFlag, o.period)}
	}
	return nil
}

const workers = 10

func (o *options) setup(ctx context.Context, env *controller.Env) error {
	if err := env.Indexes.Need(ctx, index.PodsByNode(), index.PodsByClaim(), attachmentsByNode(), attachmentsByVolume(), attachmentsByAttacher(), volumesByHandle()); err != nil {
		return err
	}
	r := &reconciler{
		client: env.Client, live: env.Live, recorder: env.Recorder("attachdetach-controller"), now: env.Clock.Now, noForce: o.noForce,
		unused: newUnused(), exclusives: &exclusives{},
	}
	w := watches{env.Manager.GetCache()}
	return controller.Run(env, controller.Options{Name: "attachdetach", Workers: workers}, r,
		controller.Watch[string]{Object: &corev1.Node{}, Handler: w.handler(w.ofNode), Predicates: []predicate.TypedPredicate[client.Object]{nodeChanged}},
		controller.Watch[string]{Object: &corev1.Pod{}, Handler: w.handler(w.ofPod)},
		controller.Watch[string]{Object: &corev1.PersistentVolumeClaim{}, Handler: w.handler(w.ofClaim)},
		controller.Watch[string]{Object: &corev1.PersistentVolume{}, Handler: w.handler(w.ofVolume)},
		controller.Watch[string]{Object: &storagev1.VolumeAttachment{}, Handler: w.handler(w.ofAttachment)},
		controller.Watch[string]{Object: &storagev1.CSIDriver{}, Handler: w.handler(w.ofDriver)})
}

// nodeChanged passes the events of nodes that change a plan, not heartbeats.
var nodeChanged = predicate.TypedFuncs[client.Object]{UpdateFunc: func(e ctrlevent.TypedUpdateEvent[client.Object]) bool {
	before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
	return before.UID != after.UID || ready(before) != ready(after) ||
		!apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) || managed(before) != managed(after) ||
		!apiequality.Semantic.DeepEqual(before.Status.VolumesInUse, after.Status.VolumesInUse) ||
		!apiequality.Semantic.DeepEqual(before.Status.VolumesAttached, after.Status.VolumesAttached)
}}

// attachAnnotation marks the nodes to which the controller attaches volumes.
const attachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// managed reports whether a node has the annotation, whatever its value, as
// kube-controller-manager takes it.
func managed(node *corev1.Node) bool {
	_, ok := node.Annotations[attachAnnotation]
	return ok
}

// attachmentsByNode, attachmentsByVolume and attachmentsByAttacher find attachments.
func attachmentsByNode() controller.Index {
	return controller.Index{Name: "node", Object: &storagev1.VolumeAttachment{}, Values: func(obj client.Object) []string {
		return []string{obj.(*storagev1.VolumeAttachment).Spec.NodeName}
	}}
}

func attachmentsByVolume() controller.Index {
	return controller.Index{Name: "volume", Object: &storagev1.VolumeAttachment{}, Values: func(obj client.Object) []string {
		if name := obj.(*storagev1.VolumeAttachment).Spec.Source.PersistentVolumeName; name != nil {
			return []string{*name}
		}
		return nil
	}}
}

func attachmentsByAttacher() controller.Index {
	return controller.Index{Name: "attacher", Object: &storagev1.VolumeAttachment{}, Values: func(obj client.Object) []string {
		return []string{obj.(*storagev1.VolumeAttachment).Spec.Attacher}
	}}
}

// volumesByHandle finds the persistent volumes of CSI drivers by their unique names: several
// may be the same volume.
func volumesByHandle() controller.Index {
	return controller.Index{Name: "handle", Object: &corev1.PersistentVolume{}, Values: func(obj client.Object) []string {
		if pv := obj.(*corev1.PersistentVolume); pv.Spec.CSI != nil {
			return []string{string(uniqueName(pv))}
		}
		return nil
	}}
}

// claimOf returns the name of the claim of a pod's volume, empty if it has none.
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return ephemeral.VolumeClaimName(pod, v)
	}
	return ""
}
